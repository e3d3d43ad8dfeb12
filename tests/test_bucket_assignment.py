"""Which bucket a minimized finding gets, and whether it is kept as a case of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.bucket_assignment import assign_bucket
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.known_buckets import Known
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.generators.methods.specs import Heads
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Mesh, Program, Shape
from tests.support.fake_pool import wrong

TWO = Mesh(world_size=2, method=Heads())


@pytest.mark.parametrize(
    ("mesh", "cases", "kept"),
    [
        (None, 2, True),
        (None, 3, False),
        (TWO, 2, False),
        (replace(TWO, ranks="processes"), 1, False),
    ],
)
def test_a_bucket_has_three_cases_or_one_of_several_processes(
    mesh: Mesh | None, cases: int, kept: bool, tmp_path: Path
) -> None:
    """`torchrun` starts the scripts of simulated ranks too."""
    simple = Program(shape=Shape(q_heads=2, kv_heads=2), mesh=mesh)
    with Store(tmp_path) as store:
        buckets = BucketIndex(store, tmp_path, Known((), {}))
        context: Any = SimpleNamespace(
            buckets=buckets,
            config=SimpleNamespace(max_cases_per_bucket=3),
            issues=(),
            environment_of=lambda row: {},
            cases_of=lambda bucket: cases,
        )

        def assigned(program: Program) -> tuple[Any, bool]:
            finding = Finding.of(program, wrong("out"), "cpu")
            investigation: Any = SimpleNamespace(finding=finding, row=None)
            return assign_bucket(investigation, context)

        bucket, is_duplicate = assigned(simple)
        assert not is_duplicate, "it is new"
        buckets.buckets = [bucket]
        again, is_duplicate = assigned(replace(simple, mask=Causal()))
        assert again.id == bucket.id and is_duplicate is not kept
