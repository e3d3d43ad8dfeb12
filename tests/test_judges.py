"""Judges: which runs of simpler programs fail as the one that is minimized did."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.fuzz.reduce.judges import fails_again, fails_wherever
from attnfuzz.fuzz.reduce.seen import matches, seen
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.methods.specs import AllGather, Heads, Ring
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Frame,
    Layer,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Mesh, Program
from tests.support.fake_pool import wrong


def test_a_log_sum_exp_that_is_wrong_alone_may_be_so_for_its_budget() -> None:
    program = Program(kernel=Flex(return_lse=True))
    alike = fails_wherever(program, wrong("lse"))
    assert alike(program, wrong("lse")) and alike(program, wrong("out", "lse"))
    assert not alike(program, wrong("out"))
    assert not fails_wherever(program, wrong("out", "lse"))(program, wrong("lse"))
    ranks = Program(mesh=Mesh(world_size=3, method=Ring(return_lse=True)))
    simpler = Program(mesh=Mesh(world_size=3, method=Heads()))
    alike = fails_wherever(ranks, wrong("lse"))
    assert alike(ranks, wrong("lse")) and alike(simpler, wrong("out"))
    assert fails_wherever(ranks, wrong("lse", "dk"))(simpler, wrong("out", "dk"))
    assert not alike(ranks, wrong("dq"))


def test_what_ranks_exchange_wrongly_shows_as_wrong_numbers_elsewhere() -> None:
    def kind(kind: FailureKind, what: str) -> Outcome:
        diff = Diff(output="dq", what=what, expected="1", actual="2")
        failure = Failure(kind=kind, phase=Phase.CHECK, layer=Layer.EAGER, diffs=(diff,))
        return Outcome(status="failed", failure=failure)

    ranks = Program(mesh=Mesh(world_size=3, method=Ring()))
    found = (
        kind(FailureKind.NONFINITE, "value"),
        kind(FailureKind.METADATA_MISMATCH, "replicas"),
    )
    for outcome in found:
        alike = fails_wherever(ranks, outcome)
        assert alike(ranks, outcome) and alike(Program(mesh=ranks.mesh), wrong("dq"))
        assert not alike(ranks, wrong("out"))
        assert not fails_wherever(Program(), outcome)(Program(), wrong("dq")), "no ranks"
    assert not fails_wherever(ranks, wrong("dq"))(ranks, found[0])


def test_ranks_disagree_about_a_result_and_its_log_sum_exp_for_one_reason() -> None:
    def disagreeing(output: str) -> Outcome:
        diff = Diff(output=output, what="replicas", expected="the same", actual="not on rank 2")
        failure = Failure(
            kind=FailureKind.METADATA_MISMATCH, phase=Phase.CHECK, layer=Layer.EAGER, diffs=(diff,)
        )
        return Outcome(status="failed", failure=failure)

    program = Program(mesh=Mesh(world_size=3, method=Ring(return_lse=True)))
    simpler = Program(mesh=Mesh(world_size=3, method=Heads()))
    alike = fails_wherever(program, disagreeing("lse"))
    assert alike(program, disagreeing("lse")) and alike(simpler, disagreeing("out"))
    assert not alike(program, disagreeing("dq"))


def test_a_crash_of_a_rank_is_minimized_to_sdpa_but_one_without_ranks_is_not() -> None:
    raised = Raised(type="Signal SIGABRT", message="rank 2 was killed by SIGABRT")
    crash = Outcome(
        status="failed",
        failure=Failure(
            kind=FailureKind.CRASH, phase=Phase.FORWARD, raised=raised, signal="SIGABRT"
        ),
    )
    by_hand = Program(kernel=Handwritten())
    of_ranks = replace(by_hand, mesh=Mesh(world_size=3, method=AllGather()))
    assert fails_wherever(of_ranks, crash)(replace(of_ranks, kernel=Sdpa()), crash)
    assert not fails_wherever(by_hand, crash)(replace(by_hand, kernel=Sdpa()), crash)


def test_a_crash_may_show_its_stack_in_one_run_and_not_in_another() -> None:
    def crash(*files: str, signal: str = "SIGSEGV") -> Outcome:
        frames = tuple(Frame(file=file, function="ffi_call", line=0) for file in files)
        raised = Raised(type=f"Signal {signal}", message=f"killed by {signal}", frames=frames)
        failure = Failure(
            kind=FailureKind.CRASH, phase=Phase.EAGER, layer=Layer.EAGER, raised=raised,
            signal=signal,
        )  # fmt: skip
        return Outcome(status="failed", failure=failure)

    with_stack, without, other = crash("libtorch_cpu.so"), crash(), crash("libc10.so")
    assert fails_again(Program(), with_stack)(Program(), without)
    assert fails_again(Program(), without)(Program(), with_stack)
    assert not fails_again(Program(), with_stack)(Program(), other)
    assert not fails_again(Program(), without)(Program(), crash(signal="SIGFPE"))
    for one, another, same in (
        (with_stack, without, True), (without, with_stack, True), (with_stack, other, False),
    ):  # fmt: skip
        assert matches(seen(one, Program()), seen(another, Program())) is same
    # A stack, once it is there, is kept: it says more than its lack.
    assert fails_wherever(Program(), without)(Program(), with_stack)
    assert not fails_wherever(Program(), with_stack)(Program(), without)
