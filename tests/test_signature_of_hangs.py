"""Signatures of hangs: where a program is stuck, and that ranks have parted."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.corpus.signature import signature
from attnfuzz.generators.model.outcome import (
    WAITING,
    Failure,
    FailureKind,
    Frame,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Program


def strong(failure: Failure) -> str:
    return signature(failure, Program()).strong


def test_a_hang_is_where_it_is_stuck_not_the_moment_it_was_seen() -> None:
    def hang(inner: str) -> Failure:
        frames = (Frame(file="torch/_inductor/scheduler.py", function="fuse_nodes"),) * 2 + (
            Frame(file="torch/_inductor/scheduler.py", function="fuse_nodes_once"),
            Frame(file="torch/_inductor/scheduler.py", function="score_fusion"),
            Frame(file="torch/_inductor/dependencies.py", function=inner),
        )
        told = Raised(type="Hang", message="no progress", frames=frames)
        return Failure(kind=FailureKind.HANG, phase=Phase.COMPILE, raised=told)

    assert strong(hang("normalize")) == strong(hang("index_vars"))
    assert strong(hang("normalize")) != strong(replace(hang("normalize"), phase=Phase.BACKWARD))


def test_ranks_that_parted_have_one_key_wherever_the_first_of_them_waits() -> None:
    def hang(function: str, evidence: str) -> Failure:
        frames = (Frame(file="torch/distributed/device_mesh.py", function=function),)
        raised = Raised(type="Hang", message="all asleep in phase compile for 8 s", frames=frames)
        said = {"ranks": f"rank 0: waits\n{evidence}"}
        return Failure(kind=FailureKind.HANG, phase=Phase.COMPILE, raised=raised, evidence=said)

    parted = (
        "parted at the 1st collective of group 0: rank 3: barrier; ranks 0, 1 and 2: all_reduce"
    )
    simulated = replace(
        hang("wait", ""), phase=Phase.BACKWARD, raised=Raised(type="Hang", message=WAITING)
    )
    assert strong(hang("mask", parted)) == strong(hang("attention", parted)) == strong(simulated)
    together = [strong(hang(name, "went another way: rank 1")) for name in ("mask", "attention")]
    assert len({*together, strong(simulated)}) == 3
