"""One finding, reduced on a pool that does nothing else: confirmed, minimized, and where it hangs
checked once more. A campaign goes through the same stages, a task at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.corpus.bucket import Bucket, assign
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.pool.pool import Pool
from attnfuzz.fuzz.pool.stage import Stage
from attnfuzz.fuzz.pool.tasks import Handle
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.fuzz.reduce.minimize import Minimize
from attnfuzz.fuzz.reduce.stage_setup import confirmation, minimization, recheck
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program

WAIT_S = 1.0


def confirm(pool: Pool, program: Program, first: Outcome, target: str, runs: int) -> Finding:
    """The finding that `program` is, whose failure was `first`, after `runs` fresh runs. Where they
    mostly show another failure, it is a finding of that one."""
    finding = Finding.of(program, first, target)
    stage = confirmation(finding, runs)
    drive(pool, stage)
    if stage.mostly is not None:
        finding = Finding.of(program, stage.mostly, target)
        stage = confirmation(finding, runs)
        drive(pool, stage)
    finding.take_confirmation(stage)
    return finding


def minimize(
    pool: Pool,
    finding: Finding,
    *,
    max_candidates: int,
    buckets: Iterable[Bucket] = (),
    on_answer: Callable[[Minimize], None] = lambda stage: None,
    stop: Callable[[], bool] = lambda: False,
) -> Minimize:
    """Minimizes a confirmed finding, which then holds its simplest program; gives the stage, whose
    search says how far it came. It goes past programs that one of `buckets` explains, unless that
    explains the finding itself. `on_answer` is called after every answer; where `stop` says so, the
    simplest program so far is kept."""
    stage = minimization(finding, Deadlines(), max_candidates, _explaining_less(finding, buckets))
    drive(pool, stage, lambda: on_answer(stage), stop)
    stage.search.stop()
    finding.take_best(stage.search)
    if finding.needs_recheck:
        again = recheck(finding)
        drive(pool, again)
        finding.take_recheck(again)
    return stage


def _explaining_less(finding: Finding, buckets: Iterable[Bucket]) -> list[Bucket]:
    """The buckets that do not explain the finding as it was found."""
    failure, traits = finding.original_failure, features(finding.program)
    found = signature(failure, finding.program)
    return [one for one in buckets if assign(found, failure, traits, [one]) is None]


def drive(
    pool: Pool,
    stage: Stage,
    on_answer: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Keeps the pool busy with one stage until it is finished or `stop` says so; `on_answer` is
    called after every answer. What still runs then is left alone, and its answer ignored."""
    running: set[Handle] = set()
    while not stage.finished and not stop():
        while pool.free and (task := stage.next_task()) is not None:
            running.add(pool.submit(task))
        if not running and pool.free:
            return
        for finished in pool.wait(WAIT_S):
            if finished.handle in running:  # not one that an earlier stage left running
                running.remove(finished.handle)
                stage.report(finished.task, finished.result)
                on_answer()
