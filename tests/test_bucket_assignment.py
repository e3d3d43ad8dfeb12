"""Which bucket a minimized finding gets, and whether it is kept as a case of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnfuzz.corpus.bucket import new_bucket
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.bucket_assignment import assign_bucket, bucket_for
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.known_buckets import Known
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.generators.methods.specs import Heads
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal, SlidingWindow
from attnfuzz.generators.model.outcome import FailureKind
from attnfuzz.generators.model.program import Input, Layout, Mesh, Program, Shape, Training
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


def test_a_nan_that_an_input_brings_is_no_cause_of_its_own(tmp_path: Path) -> None:
    """Whichever was found first: numbers are wrong with it and without it."""
    plain = Program(mask=Causal())
    brought = replace(plain, v=Input(values="nan"), training=Training())
    failure = wrong("out").failure
    assert failure is not None
    of_nan = replace(failure, kind=FailureKind.NONFINITE)
    first = new_bucket(signature(of_nan, brought), of_nan, features(brought))
    with Store(tmp_path) as store:
        buckets = BucketIndex(store, tmp_path, Known((), {}))
        buckets.buckets = [first]
        found, is_new = bucket_for(Finding.of(plain, wrong("out"), "cpu"), buckets, None)
        assert (found, is_new) == (first, False)
        gradient = Finding.of(plain, wrong("dq"), "cpu")
        assert bucket_for(gradient, buckets, None)[1], "another output"


EXPANDED = Input(layout=Layout(order=(0, 2, 3, 1), expand=(2,)))


@pytest.mark.parametrize(
    ("known", "found", "same"),
    [
        (Program(q=EXPANDED), Program(k=Input(layout=Layout(expand=(0,)))), False),
        (Program(q=EXPANDED), Program(k=EXPANDED), False),
        (Program(q=EXPANDED), Program(q=Input(layout=Layout(expand=(0,)))), True),
        (Program(mask=Causal(offset=1)), Program(mask=SlidingWindow(window=3)), False),
        (Program(mask=Causal(offset=1)), Program(mask=Causal()), True),
    ],
)
def test_what_is_known_explains_only_what_shares_its_examples(
    known: Program, found: Program, same: bool, tmp_path: Path
) -> None:
    """A campaign's own bucket explains what differs from it in the example alone."""
    failure = wrong("out").failure
    assert failure is not None
    bucket = new_bucket(signature(failure, known), failure, features(known))
    finding = Finding.of(found, wrong("out"), "cpu")
    with Store(tmp_path) as store:
        shipped = Known((bucket,), {bucket.id: frozenset({"cpu"})})
        got, is_new = bucket_for(finding, BucketIndex(store, tmp_path, shipped), None)
        assert (got.id == bucket.id, is_new) == (same, not same)
        own = BucketIndex(store, tmp_path, Known())
        own.buckets = [bucket]
        assert bucket_for(finding, own, None) == (bucket, False)
