"""Replay's verdicts, with runs that are made up; the command is tested in test_cli_replay."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.case import find_cases, read_case
from attnfuzz.fuzz import environment
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.replay.session import Places, replay_all
from attnfuzz.fuzz.replay.verdict import (
    RUNS_AT_LEAST,
    RUNS_AT_MOST,
    Recorded,
    Replayed,
    Verdict,
    replay,
    runs_needed,
)
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Layer,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Program

CASES = Path(__file__).resolve().parent.parent / "corpus" / "cases"
PASSED = Outcome(status="passed")
REJECTED = Outcome(status="rejected", rejection="a listed refusal")


def wrong(output: str) -> Failure:
    diff = Diff(output=output, what="value", expected="1.0", actual="2.0", error=1.0, budget=1e-6)
    return Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.FORWARD, layer=Layer.INDUCTOR, diffs=(diff,)
    )


def raised(message: str) -> Failure:
    return Failure(
        kind=FailureKind.COMPILE_ERROR,
        phase=Phase.COMPILE,
        layer=Layer.INDUCTOR,
        raised=Raised(type="torch._inductor.exc.CppCompileError", message=message),
    )


def failed(failure: Failure) -> Outcome:
    return Outcome(status="failed", failure=failure)


def replayed(recorded: Recorded, outcomes: Iterable[Outcome]) -> Replayed:
    """Replays one case whose runs give `outcomes` in order; fails when it is run once more."""
    waiting = iter(outcomes)
    (result,) = replay([recorded], lambda programs: [next(waiting) for _ in programs])
    assert next(waiting, None) is None, "not every given outcome was asked for"
    return result


RELIABLE = Recorded(program=Program(), failure=wrong("out"), runs=5, failures=5)
FLAKY = Recorded(program=Program(), failure=wrong("out"), runs=5, failures=2)


def test_one_run_that_fails_as_recorded_settles_a_case() -> None:
    assert replayed(RELIABLE, [failed(wrong("out"))]).verdict is Verdict.AS_RECORDED


@pytest.mark.parametrize("outcome", [PASSED, REJECTED])
def test_a_case_that_never_fails_is_fixed(outcome: Outcome) -> None:
    result = replayed(RELIABLE, [outcome] * RUNS_AT_LEAST)
    assert result.verdict is Verdict.FIXED
    assert [one.status for one in result.seen] == [outcome.status] * RUNS_AT_LEAST


def test_another_failure_is_a_change_and_is_named() -> None:
    result = replayed(RELIABLE, [failed(raised("error: no match"))] * RUNS_AT_LEAST)
    assert result.verdict is Verdict.CHANGED
    assert result.summary.startswith("changed to compile_error (")


def test_the_same_kind_with_another_key_is_a_change() -> None:
    result = replayed(RELIABLE, [failed(wrong("dq"))] * RUNS_AT_LEAST)
    assert result.verdict is Verdict.CHANGED


def test_a_reliable_case_that_fails_only_sometimes_has_become_flaky() -> None:
    assert replayed(RELIABLE, [PASSED, failed(wrong("out"))]).verdict is Verdict.FLAKY


def test_a_flaky_case_that_fails_only_sometimes_is_as_recorded() -> None:
    outcomes = [PASSED, PASSED, failed(wrong("out"))]
    assert replayed(FLAKY, outcomes).verdict is Verdict.AS_RECORDED


def test_a_flaky_case_is_called_fixed_only_after_enough_runs() -> None:
    needed = runs_needed(FLAKY)
    assert (1 - 2 / 5) ** needed <= 0.01 < (1 - 2 / 5) ** (needed - 1)
    assert replayed(FLAKY, [PASSED] * needed).verdict is Verdict.FIXED


def test_runs_needed_are_bounded() -> None:
    once_in_a_thousand = Recorded(program=Program(), failure=wrong("out"), runs=1000, failures=1)
    assert runs_needed(once_in_a_thousand) == RUNS_AT_MOST
    assert runs_needed(RELIABLE) == RUNS_AT_LEAST


def test_the_most_frequent_other_failure_is_the_change() -> None:
    outcomes = [failed(wrong("dq")), failed(raised("error: x")), failed(raised("error: x"))]
    assert "compile_error" in replayed(RELIABLE, outcomes).summary


def test_every_round_runs_only_the_cases_still_open() -> None:
    first, second = Program(seed=1), Program(seed=2)
    cases = [Recorded(program=p, failure=wrong("out")) for p in (first, second)]
    rounds: list[list[int]] = []
    told: list[tuple[int, Verdict]] = []

    def evaluate(programs: Sequence[Program]) -> list[Outcome]:
        rounds.append([program.seed for program in programs])
        return [failed(wrong("out")) if p == first else PASSED for p in programs]

    results = replay(cases, evaluate, lambda place, result: told.append((place, result.verdict)))
    assert rounds == [[1, 2]] + [[2]] * (RUNS_AT_LEAST - 1)
    assert [result.verdict for result in results] == [Verdict.AS_RECORDED, Verdict.FIXED]
    assert told == [(0, Verdict.AS_RECORDED), (1, Verdict.FIXED)]


def test_nothing_to_replay_runs_nothing() -> None:
    def evaluate(programs: Sequence[Program]) -> list[Outcome]:
        raise AssertionError(f"ran {len(programs)} programs")

    assert replay([], evaluate) == []


def test_a_case_that_the_target_cannot_take_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = TARGETS["cpu"]
    monkeypatch.setattr(type(cpu), "unfit", lambda *_: "mesh: expected none")
    reported: list[str] = []
    folder = find_cases([CASES])[0]
    at = Places((folder,), ("cpu",), sys.executable, (), False, 1, reported.append)
    with pytest.raises(UserError, match="mesh: expected none"):  # no case could be run
        replay_all([read_case(folder)], at)
    reported.clear()
    results, there = replay_all([read_case(folder)], replace(at, lenient=True))
    assert [result.verdict for result in results] == [Verdict.NOT_RUN] and there == [{}]
    assert reported == [f"not run      {folder}: mesh: expected none"]


def test_a_case_that_needs_instructions_is_run_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "cpu_flags", lambda: frozenset({"avx2", "fma"}))
    reported: list[str] = []
    folder = find_cases([CASES])[0]
    at = Places((folder,), ("cpu",), sys.executable, (), False, 1, reported.append, lenient=True)
    case = read_case(folder)
    needs = replace(case, environment={**case.environment, "cpu_flags": "avx2 amx_bf16"})
    results, _ = replay_all([needs], at)
    assert [result.verdict for result in results] == [Verdict.NOT_RUN]
    assert reported == [f"not run      {folder}: it needs a CPU with amx_bf16"]
    assert environment.lacks_cpu({"cpu_flags": "avx2"}) is None
    assert environment.lacks_cpu({}) is None
