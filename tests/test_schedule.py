"""Who is behind, and when what ends."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.watchdog import ASLEEP
from attnfuzz.corpus.bucket import Bucket, new_bucket
from attnfuzz.corpus.signature import Signature, signature
from attnfuzz.corpus.store.store import FailureRow, State
from attnfuzz.fuzz.campaign.investigation import Investigation
from attnfuzz.fuzz.campaign.schedule import FairShare, Timetable
from attnfuzz.fuzz.pool.stage import outcomes_of
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, TaskFailed, WorkerDied
from attnfuzz.fuzz.reduce.confirm import Confirm, attempts_for, is_flaky
from attnfuzz.fuzz.reduce.deadlines import candidate_s, shorter_deadlines
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import (
    DEADLINE,
    Cost,
    Failure,
    FailureKind,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Program


def test_investigating_comes_first_until_it_has_its_share() -> None:
    fair = FairShare(share=0.5)
    assert fair.is_due(0.0)
    fair.start(1, True, 0.0)
    assert not fair.is_due(1.0)
    fair.start(2, False, 1.0)
    assert fair.is_due(1.0) is False
    fair.stop(1, 2.0)
    assert fair.is_due(3.0)


def test_a_share_of_all_always_investigates() -> None:
    fair = FairShare(share=1.0)
    fair.start(1, True, 0.0)
    assert fair.is_due(100.0)


def test_shares_hold_over_many_tasks() -> None:
    fair, spent, now = FairShare(share=0.25), {True: 0.0, False: 0.0}, 0.0
    for handle in range(400):
        investigates = fair.is_due(now)
        length = 3.0 if investigates else 1.0
        fair.start(handle, investigates, now)
        now += length
        fair.stop(handle, now)
        spent[investigates] += length
    assert spent[True] / now == pytest.approx(0.25, abs=0.02)


def test_shares_are_of_the_last_minutes_not_of_the_whole_night() -> None:
    fair = FairShare(share=0.5, window_s=100.0)
    fair.start(1, False, 0.0)
    fair.stop(1, 10_000.0)  # hours of new programs only
    fair.start(2, True, 10_000.0)
    fair.stop(2, 10_090.0)
    assert fair.busy(10_090.0) == {False: 10.0, True: 90.0}
    assert not fair.is_due(10_090.0)
    assert fair.is_due(10_200.0), "that was long ago"


def test_one_of_several_workers_is_always_at_new_programs() -> None:
    fair = FairShare(share=1.0, workers=3)
    for handle in (1, 2):
        assert fair.is_due(0.0)
        fair.start(handle, True, 0.0)
    assert not fair.is_due(1.0)
    fair.stop(1, 2.0)
    assert fair.is_due(2.0)


def test_the_timetable_leaves_time_to_finish_what_was_found() -> None:
    table = Timetable(100)
    assert table.may_find(79, pending=True) and not table.may_find(81, pending=True)
    assert table.may_find(81, pending=False) and not table.may_find(99, pending=False)
    assert not table.must_wind_down(90) and table.must_wind_down(93)
    assert not table.is_over(99.9) and table.is_over(100)


def test_a_night_leaves_no_more_time_than_finishing_takes() -> None:
    hour, night = 3600.0, Timetable(8 * 3600.0)
    assert night.may_find(7.6 * hour, pending=True) and not night.may_find(7.7 * hour, pending=True)
    assert night.may_find(7.9 * hour, pending=False)
    assert not night.may_find(7.96 * hour, pending=False)
    assert not night.must_wind_down(7.9 * hour) and night.must_wind_down(7.92 * hour)


@pytest.mark.parametrize(
    ("failed", "runs", "flaky"), [(0, 5, True), (1, 5, False), (5, 5, False), (1, 6, True)]
)
def test_flaky_is_fewer_than_one_in_five(failed: int, runs: int, flaky: bool) -> None:
    assert is_flaky(failed, runs) is flaky


@pytest.mark.parametrize(("failed", "runs", "attempts"), [(5, 5, 1), (4, 5, 2), (1, 2, 5)])
def test_candidates_of_an_unreliable_failure_run_more_often(
    failed: int, runs: int, attempts: int
) -> None:
    assert attempts_for(failed, runs) == attempts


def test_attempts_are_bounded() -> None:
    assert attempts_for(1, 100) == 8
    assert attempts_for(0, 0) == 1


def test_a_hang_is_minimized_with_shorter_deadlines() -> None:
    failure = Failure(kind=FailureKind.HANG, phase=Phase.FORWARD)
    seconds = {"build": 1.0, "compile": 4.0, "forward": 30.0}
    short = shorter_deadlines(failure, seconds, Deadlines(forward=30, compile=120))
    assert short.forward == 15
    assert short.compile == 30
    assert short.total == Deadlines().total
    assert short.idle == Deadlines().idle / 4


HANG = Outcome(
    status="failed",
    failure=Failure(kind=FailureKind.HANG, phase=Phase.FORWARD),
    cost=Cost(wall_s=30.0),
)
ENDED = Outcome(status="passed", cost=Cost(wall_s=1.0))
SLOW = replace(ENDED, skipped={DEADLINE: "but not with 3 times that"})


def confirmed(hangs: bool, *outcomes: Outcome) -> tuple[int, int, list[bool]]:
    """How many runs of how many fail, and which of those asked for were patient."""
    stage = Confirm(Program(), lambda _, outcome: outcome is HANG, 3, hangs=hangs)
    patient = []
    for outcome in outcomes:
        asked = [task for task in (stage.next_task(), stage.next_task()) if task is not None]
        assert len(asked) == 1 or not (hangs and not stage.failed)
        for task in asked:
            assert isinstance(task, RunTask)
            patient.append(task.settings.confirm_hang)
            stage.report(task, [outcome])
    assert stage.finished and stage.next_task() is None
    return stage.failed, stage.runs, patient


def test_a_hang_is_given_longer_deadlines_until_it_hangs_even_so() -> None:
    assert confirmed(True, ENDED, HANG, HANG) == (2, 3, [True, True, False])
    assert confirmed(True, ENDED, ENDED, ENDED) == (0, 3, [True, True, True])


def test_a_run_that_is_lost_is_made_again_as_often_as_there_are_runs() -> None:
    stage = Confirm(Program(), lambda _, outcome: outcome is HANG, 2, hangs=False)
    answers: list[Answer] = [WorkerDied(3), [HANG], TaskFailed("ours"), WorkerDied(4), [HANG]]
    told = 0
    while (task := stage.next_task()) is not None:
        stage.report(task, answers[told])
        told += 1
    assert stage.finished and (stage.failed, stage.runs, told) == (1, 1, 4)


@pytest.mark.parametrize("answer", [WorkerDied(3), TaskFailed("ours")])
def test_a_run_that_no_worker_survived_is_lost_and_not_refused(answer: Answer) -> None:
    outcomes = outcomes_of(RunTask((Program(), Program())), answer)
    assert [outcome.status for outcome in outcomes] == ["lost", "lost"]
    assert outcomes[0].rejection in ("the worker died", "ours")


def is_same(one: Outcome, _: Program, other: Outcome) -> bool:
    return one is other


def test_what_mostly_fails_otherwise_is_told() -> None:
    for judged, mostly in ((ENDED, HANG), (HANG, None)):
        stage = Confirm(Program(), partial(is_same, judged), 1, hangs=False)
        task = stage.next_task()
        assert task is not None
        stage.report(task, [HANG])
        assert stage.mostly is mostly


def test_what_ends_with_longer_deadlines_is_slow_and_no_hang() -> None:
    assert confirmed(True, SLOW) == (0, 1, [True])
    assert confirmed(True, ENDED, SLOW) == (0, 2, [True, True])


def test_other_failures_are_confirmed_side_by_side() -> None:
    assert confirmed(False, ENDED, ENDED)[1:] == (3, [True, False, False])


def test_what_hangs_is_as_urgent_as_its_shorter_deadlines_allow() -> None:
    seconds = {"build": 1.0, "eager": 0.5, "compile": 60.0}
    hang = Outcome(
        status="failed",
        failure=Failure(kind=FailureKind.HANG, phase=Phase.COMPILE),
        cost=Cost(wall_s=61.5, phases=seconds),
    )
    assert candidate_s(hang, Deadlines(compile=20)) == 1.5 + 5
    raised = Raised(type="Hang", message=f"{ASLEEP} in phase compile for 60 s")
    asleep = Failure(kind=FailureKind.HANG, phase=Phase.COMPILE, raised=raised)
    assert candidate_s(replace(hang, failure=asleep), Deadlines(compile=20, idle=8)) == 1.5 + 2
    slow = replace(hang, failure=Failure(kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE))
    assert candidate_s(slow, Deadlines(compile=20)) == 61.5


def test_what_was_spent_is_counted_from_the_beginning() -> None:
    fair = FairShare(share=0.5, window_s=1.0)
    fair.start(1, True, 0.0)
    fair.stop(1, 4.0)
    fair.start(2, False, 5.0)
    assert fair.spent(10_000.0) == {True: 4.0, False: 9995.0}
    assert fair.busy(10_000.0) == {True: 0.0, False: 1.0}


def waiting(candidate_s: float, strong: str = "a") -> Investigation:
    """A finding that was met at 0 s, and has no run yet."""
    program = Program()
    failure = Failure(kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK)
    row = FailureRow(
        number=1, program_id=program_id(program), program=program,
        outcome=Outcome(status="failed", failure=failure), strong=strong, shard=0, state=State.NEW,
        target="cpu", runs=0, failures=0, bucket=None, best=None, best_outcome=None, evaluated=0,
    )  # fmt: skip
    return Investigation(row, None, candidate_s)


def bucket_of(strong: str, *needs: str) -> Bucket:
    """A bucket with that key, all of whose programs have what it `needs`."""
    found = Signature(strong=strong, title="", needs_trigger=True)
    failure = Failure(kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK)
    return new_bucket(found, failure, frozenset(needs))


KNOWN = {"a": [bucket_of("a")]}
"""A bucket that explains whatever has its key."""


def test_a_known_key_comes_first_only_to_be_told_apart() -> None:
    unsuspected, suspected = waiting(1.0), waiting(1.0)
    program, failure = suspected.row.program, suspected.failure
    bucket = new_bucket(signature(failure, program), failure, features(program))
    suspected.suspects = [(bucket, [program])]
    assert unsuspected.is_known(KNOWN) and not unsuspected.is_known({"b": [bucket_of("b")]})
    assert not suspected.is_known(KNOWN)
    assert suspected.rank((), KNOWN, 0.0) < unsuspected.rank((), KNOWN, 0.0)
    suspected.suspects = ()
    assert suspected.is_known(KNOWN)
    suspected.told_apart = True
    assert not suspected.is_known(KNOWN)


def test_a_key_alone_makes_nothing_known() -> None:
    """Where it has no stack, whatever is wrong with an output has the same."""
    finding = waiting(1.0)
    assert not finding.is_known({"a": [bucket_of("a", "layout.q.expanded")]})
    assert finding.is_known({"a": [bucket_of("a", "layout.q.expanded"), bucket_of("a")]})


def test_a_cheap_finding_that_seems_known_is_run_before_five_minutes_are_over() -> None:
    known, other = waiting(1.0), waiting(1.0, strong="b")
    assert other.rank((), KNOWN, 200.0) < known.rank((), KNOWN, 200.0)
    other.cpu_s["confirm"] = 1.0
    assert known.rank((), KNOWN, 250.0) < other.rank((), KNOWN, 250.0)
    known.cpu_s["confirm"] = 1.0
    assert other.rank((), KNOWN, 250.0) < known.rank((), KNOWN, 250.0)
    expensive = waiting(90.0)
    assert other.rank((), KNOWN, 250.0) < expensive.rank((), KNOWN, 250.0)


def test_a_cheap_finding_is_confirmed_before_others_are_minimized() -> None:
    minimized, crash, slow = waiting(5.0), waiting(9.0), waiting(30.0)
    minimized.finding.runs = minimized.finding.failed = 5
    for one in (minimized, crash, slow):
        one.cpu_s["confirm"] = 1.0
    assert crash.rank((), {}, 60.0) < minimized.rank((), {}, 60.0) < slow.rank((), {}, 60.0)
