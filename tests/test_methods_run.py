"""Methods by which ranks share one attention: any number of ranks gives what one does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.corpus.signature import parted, signature
from attnfuzz.generators.methods.specs import AllGather, Heads, Method, Ring, Ulysses
from attnfuzz.generators.model.outcome import FailureKind
from attnfuzz.generators.model.program import Call, Compile
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from tests.support.method_programs import (
    LESS_ORDINARY,
    METHODS,
    PROGRAMS,
    program,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize("name", [name for name in METHODS if not name.startswith("flex")])
def test_any_degree_gives_what_one_does(sandbox: Sandbox, name: str, degree: int) -> None:
    each = program(METHODS[name], degree)
    if problems(each):
        assert (name, degree) == ("ring-of-ulysses", 1)
        return
    outcome = sandbox.run(source(each), Job.of(each))
    assert outcome.status == "passed", outcome


@pytest.mark.parametrize("name", LESS_ORDINARY)
def test_less_ordinary_programs_pass_too(sandbox: Sandbox, name: str) -> None:
    each = PROGRAMS[name]
    assert sandbox.run(source(each), Job.of(each)).status == "passed"


@pytest.mark.parametrize("name", ["ring", "context-parallel-balanced", "ulysses"])
def test_processes_agree(sandbox: Sandbox, name: str) -> None:
    each = program(METHODS[name], 2)
    assert each.mesh is not None
    each = replace(each, mesh=replace(each.mesh, ranks="processes"))
    assert sandbox.run(source(each), Job.of(each)).status == "passed"


@pytest.mark.parametrize("ranks", ["simulated", "processes"])
@pytest.mark.parametrize(
    ("method", "via"),
    [(AllGather(), "compile"), (Ulysses(by="collective"), "local"), (Heads(), "compile")],
)
def test_other_extents_are_compiled_by_every_rank(
    sandbox: Sandbox, method: Method, via: Any, ranks: Any
) -> None:
    each = program(method, 2)
    assert each.mesh is not None
    further = (Call(batch=1, q_len=8, kv_len=8), Call(batch=2, q_len=12, kv_len=12))
    each = replace(
        each, mesh=replace(each.mesh, ranks=ranks), calls=further,
        compile=Compile(backend="aot_eager", via=via),
    )  # fmt: skip
    assert not problems(each)
    outcome = sandbox.run(source(each), Job.of(each))
    assert outcome.status == "passed", outcome


def test_what_is_wrong_in_a_later_call_is_seen(sandbox: Sandbox) -> None:
    each = program(Heads(), 2)
    each = replace(each, calls=(Call(batch=1, q_len=12, kv_len=12),))
    text = source(each)
    once = text.replace("full_tensor()", "full_tensor() * (1 + (q.shape[2] == 12))")
    assert once != text
    failure = sandbox.run(once, Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.WRONG_RESULT
    assert failure.diffs[0].call == 1


def test_what_is_compiled_is_judged_on_two_dimensions(sandbox: Sandbox) -> None:
    each = PROGRAMS["ulysses-of-two-dimensions"]
    assert each.mesh is not None
    few = replace(each, mesh=replace(each.mesh, world_size=4, data=1))
    outcome = sandbox.run(source(few), Job.of(few))
    assert outcome.status == "passed", outcome


def test_flex_attention_over_ranks(sandbox: Sandbox) -> None:
    each = PROGRAMS["flex-context-parallel-lse"]
    assert sandbox.run(source(each), Job.of(each)).status == "passed"


WRONG = {
    "stale keys": ("k, v, dk, dv = rotate(k, v, dk, dv)", "_, _, dk, dv = rotate(k, v, dk, dv)"),
    "no rescaling": ("(other_lse - lse).nan_to_num().sigmoid()", "0.5 + 0 * lse"),
    "a log-sum-exp of the last block": ("torch.logaddexp(lse, other_lse)", "other_lse"),
    "another rank's mask": ("masks[(RANK - step) % SIZE]", "masks[RANK]"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_in_a_ring_is_seen(sandbox: Sandbox, what: str) -> None:
    each = program(Ring(), 2)
    text = source(each)
    assert WRONG[what][0] in text
    failure = sandbox.run(text.replace(*WRONG[what]), Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.WRONG_RESULT


def test_gradients_that_are_not_summed_over_the_ranks_are_seen(sandbox: Sandbox) -> None:
    each = PROGRAMS["ring-under-fsdp"]
    failure = sandbox.run(source(each).replace("2 * w.grad", "w.grad"), Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.WRONG_RESULT
    assert {diff.output for diff in failure.diffs} == {"dwq", "dwk", "dwv", "dwo"}


def test_a_rank_that_skips_a_collective_is_seen_at_once(sandbox: Sandbox) -> None:
    each = program(Ring(), 3)
    skips = "    if RANK == 1:\n        return tensors\n    received = [t"
    failure = sandbox.run(source(each).replace("    received = [t", skips), Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.HANG
    assert "rank 2: waits in recv from rank 1" in failure.evidence["ranks"]


def test_a_rank_that_issues_another_collective_is_named(sandbox: Sandbox) -> None:
    each = program(Heads(), 3)
    last = "return dist.barrier() if MESH.get_rank() == 1 else DTensor"
    text = source(each).replace("return DTensor", last)
    failure = sandbox.run(text, Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.HANG
    assert "rank 1: waits in barrier" in failure.evidence["ranks"]
    assert failure.evidence["ranks"].endswith("went another way: rank 1")


def test_ranks_that_part_have_one_key_whether_they_hang_or_abort(sandbox: Sandbox) -> None:
    simulated = program(Heads(), 2)
    assert simulated.mesh is not None
    processes = replace(simulated, mesh=replace(simulated.mesh, ranks="processes"))
    small = "dist.all_reduce(torch.zeros(8))"
    keys = set()
    for each, other, kind in (
        (simulated, "dist.broadcast(torch.zeros(8), 0)", FailureKind.HANG),
        (processes, "dist.all_reduce(torch.zeros(64))", FailureKind.CRASH),
    ):
        last = f"return {other} if MESH.get_rank() == 1 else {small} or DTensor"
        failure = sandbox.run(
            source(each).replace("return DTensor", last),
            replace(Job.of(each), deadlines=Deadlines(eager=5.0)),
            confirm_hang=False,
        ).failure
        assert failure is not None and failure.kind is kind and parted(failure), failure
        keys.add(signature(failure, each).strong)
    assert len(keys) == 1


def test_ranks_that_get_other_results_are_seen(sandbox: Sandbox) -> None:
    each = program(Heads(), 2)
    text = source(each).replace("full_tensor()", "full_tensor() + 1e-7 * MESH.get_rank()")
    failure = sandbox.run(text, Job.of(each)).failure
    assert failure is not None and failure.oracle == "replicas"


def test_a_collective_more_is_seen_though_nothing_hangs(sandbox: Sandbox) -> None:
    each = program(Heads(), 2)
    more = "MESH.get_rank() and dist.isend(out.detach().contiguous(), 0)"
    text = source(each).replace("    return DTensor", f"    {more}\n    return DTensor")
    failure = sandbox.run(text, Job.of(each)).failure
    assert failure is not None and failure.oracle == "collectives"
    assert failure.diffs[0].output == "collectives"
    assert "rank 1" in failure.evidence["collectives"]
