"""Confirmation: a program that failed is run afresh before anything else is done with it."""

from __future__ import annotations

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.verdict import is_defect
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.pool.stage import outcomes_of
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, Task, TaskFailed, WorkerDied
from attnfuzz.fuzz.reduce.deadlines import first_deadline_only
from attnfuzz.fuzz.reduce.judges import Judge
from attnfuzz.generators.model.outcome import DEADLINE, Outcome
from attnfuzz.generators.model.program import Program

FLAKY_BELOW = 0.2
"""A program that fails in a smaller share of its fresh runs is flaky."""


def is_flaky(failed: int, runs: int) -> bool:
    """Whether `failed` of `runs` fresh runs is too seldom to go on with."""
    return runs > 0 and failed < FLAKY_BELOW * runs


def attempts_for(failed: int, runs: int, miss: float = 0.05, most: int = 8) -> int:
    """How often to run a candidate so that a failure as reliable as this one (`failed` of `runs`)
    is missed with probability at most `miss`: the least n with (1 - failed/runs)^n <= miss."""
    missed, count = 1.0 - (failed / runs if runs else 1.0), 1
    while missed**count > miss and count < most:
        count += 1
    return count


class Confirm:
    """Runs `program` afresh `runs` times, each a task of its own on `target` (None: the worker's
    first). `failed` counts the runs that `judge` takes for the same failure, `outcome` is the
    first of them.

    A hang (`hangs`) is run one at a time with longer deadlines after a missed one, until it hangs
    even so; the other runs, which would each take four deadlines, then have the usual ones. A run
    that only needed the longer ones ends it with fewer `runs`: the program is slow.

    A run that was lost with its worker is made again, as often as there are `runs`; if it is still
    lost, there are fewer.
    """

    def __init__(
        self,
        program: Program,
        judge: Judge,
        runs: int,
        *,
        hangs: bool,
        target: str | None = None,
    ) -> None:
        self.other_failures: list[tuple[Program, Outcome]] = []
        self.outcome: Outcome | None = None
        self.failed = 0
        self.runs = runs
        self._losses_left = runs
        self._otherwise: list[Outcome] = []
        self._program = program
        self._judge = judge
        self._hangs = hangs
        self._target = target
        self._given_out = self._reported = 0

    @property
    def finished(self) -> bool:
        return self._reported == self.runs

    @property
    def mostly(self) -> Outcome | None:
        """Where the program is flaky by `judge`, and is not by some other failure: that."""
        found: dict[str, list[Outcome]] = {}
        for outcome in self._otherwise:
            if outcome.failure is not None and not is_defect(outcome):
                key = signature(outcome.failure, self._program).strong
                found.setdefault(key, []).append(outcome)
        most = max(found.values(), key=len, default=[])
        steady = bool(most) and not is_flaky(len(most), self.runs)
        return most[0] if steady and is_flaky(self.failed, self.runs) else None

    def next_task(self) -> Task | None:
        patient = self._hangs and not self.failed
        if self._given_out == self.runs or (patient and self._given_out > self._reported):
            return None
        self._given_out += 1
        patient = patient or self._given_out == 1
        settings = RunSettings(confirm_hang=patient, target=self._target)
        return RunTask((self._program,), settings)

    def report(self, task: Task, answer: Answer) -> None:
        if isinstance(answer, WorkerDied | TaskFailed):
            self._given_out -= 1
            if self._losses_left:
                self._losses_left -= 1
            else:
                self.runs -= 1
            return
        self._reported += 1
        program = self._program
        for outcome in outcomes_of(task, answer):
            if self._judge(program, outcome):
                self.failed += 1
                self.outcome = self.outcome or outcome
                continue
            if outcome.status == "failed" and not first_deadline_only(task, outcome):
                self.other_failures.append((program, outcome))
                self._otherwise.append(outcome)
            if self._hangs and DEADLINE in outcome.skipped:
                self.runs = self._reported
