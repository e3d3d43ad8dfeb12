"""What `replay --record` tells of torch itself, into which faults are planted; what stands for
another torch is the same one with other faults planted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.corpus.bucket import new_bucket
from attnfuzz.corpus.case import Case, Preload, write_bucket, write_case
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.cli.app import main
from attnfuzz.fuzz.pool.opened import outcomes, pool
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.program import Program, Shape

PLANTS = '''"""Plants the faults that a file names: SDPA raises for some programs."""

from pathlib import Path

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
FAULTS = Path({path!r}).read_text().split()
original = torch.library.get_kernel(f"aten::{{OPERATOR}}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    meets = {{"scaled": scale is not None, "uneven": query.size(2) != key.size(2)}}
    for fault in FAULTS:
        if meets[fault]:
            raise RuntimeError(f"planted: {{fault}}")
    return original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
'''
SQUARE = Shape(q_len=8, kv_len=8, head_dim=16)
PROGRAMS = (
    Program(kernel=Sdpa(scale=0.5), shape=SQUARE),
    Program(kernel=Sdpa(), shape=Shape(q_len=8, kv_len=16, head_dim=16)),
)


def kept(corpus: Path, preload: Path) -> list[str]:
    """Runs the programs and keeps their failures in a corpus; the ids of the buckets."""
    with pool(sys.executable, [preload]) as one:
        found, environment = outcomes(one, PROGRAMS), one.environment()
    names = []
    for program, outcome in zip(PROGRAMS, found, strict=True):
        failure = outcome.failure
        assert failure is not None and failure.raised is not None
        assert "planted: " in failure.raised.message
        bucket = new_bucket(signature(failure, program), failure, features(program))
        case = Case(
            program=program, failure=failure, environment=environment, runs=1, failures=1,
            preload=(Preload.of(preload),),
        )  # fmt: skip
        write_bucket(corpus, bucket)
        write_case(corpus, bucket, case)
        names.append(bucket.id)
    return names


@pytest.mark.slow
def test_replays_tell_what_stopped_failing_and_what_came_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, faults, preload = (tmp_path / name for name in ("corpus", "faults.txt", "plants.py"))
    preload.write_text(PLANTS.format(path=str(faults)))
    faults.write_text("scaled uneven")
    a, b = kept(corpus, preload)

    def replayed(*planted: str) -> dict[str, Any]:
        faults.write_text(" ".join(planted))
        command = ["replay", str(corpus), "--record", "--json", "--workers", "1"]
        command += ["--preload", str(preload)]
        capsys.readouterr()
        assert main(command) in (0, 1)
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return {name: list(told[name]) for name in ("stopped", "came_back")}

    assert replayed("scaled", "uneven") == {"stopped": [], "came_back": []}
    assert replayed("scaled") == {"stopped": [b], "came_back": []}
    assert replayed("scaled") == {"stopped": [], "came_back": []}, "that is known now"
    assert replayed("uneven") == {"stopped": [a], "came_back": [b]}
    assert main(["triage", str(corpus), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["buckets"]
    assert {row["id"]: row["state"] for row in rows} == {a: "passes", b: "came back"}
