"""Confirmation: a failure is run afresh before anything is made of it; so is its script at last."""

from __future__ import annotations

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.verdict import is_defect
from attnfuzz.actors.sandbox.watchdog import ASLEEP
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.campaign.schedule import outcomes_of
from attnfuzz.fuzz.campaign.tasks import Answer, ReproTask, RunTask, Task, TaskFailed, WorkerDied
from attnfuzz.fuzz.reduce.evaluate import reproduces
from attnfuzz.fuzz.reduce.minimize import Judge
from attnfuzz.generators.model.outcome import DEADLINE, Failure, FailureKind, Outcome
from attnfuzz.generators.model.program import Program

FLAKY_BELOW = 0.2
"""A program that fails in a smaller share of its fresh runs is flaky."""

INTERPRETER_S = 60.0
"""Seconds that a plain process may take on top of a phase's deadline: to import torch, and to
build the precompiled headers that a sandbox shares."""


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


def is_hasty(task: Task, outcome: Outcome) -> bool:
    """Whether `task` made `outcome` a hang at the first missed deadline: for all that is known the
    program is slow."""
    hasty = isinstance(task, RunTask) and not task.confirm_hang
    return hasty and outcome.failure is not None and outcome.failure.kind is FailureKind.HANG


class Confirm:
    """Runs `program` afresh `runs` times, each a task of its own. `failed` counts the runs that
    `judge` takes for the same failure, `outcome` is the first of them.

    A hang (`hangs`) is run one at a time with longer deadlines after a missed one, until it hangs
    even so; the other runs, which would each take four deadlines, then have the usual ones. A run
    that only needed the longer ones ends it with fewer `runs`: the program is slow.

    A run that was lost with its worker is made again, as often as there are `runs`; if it is still
    lost, there are fewer.
    """

    name = "confirming"

    def __init__(self, program: Program, judge: Judge, runs: int, *, hangs: bool) -> None:
        self.others: list[tuple[Program, Outcome]] = []
        self.outcome: Outcome | None = None
        self.failed = 0
        self.runs = runs
        self._losses_left = runs
        self._otherwise: list[Outcome] = []
        self._program = program
        self._judge = judge
        self._hangs = hangs
        self._asked = self._told = 0

    @property
    def finished(self) -> bool:
        return self._told == self.runs

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

    def ask(self) -> Task | None:
        patient = self._hangs and not self.failed
        if self._asked == self.runs or (patient and self._asked > self._told):
            return None
        self._asked += 1
        return RunTask((self._program,), confirm_hang=patient or self._asked == 1)

    def tell(self, task: Task, answer: Answer) -> None:
        if isinstance(answer, WorkerDied | TaskFailed):
            self._asked -= 1
            if self._losses_left:
                self._losses_left -= 1
            else:
                self.runs -= 1
            return
        self._told += 1
        program = self._program
        for outcome in outcomes_of(task, answer):
            if self._judge(program, outcome):
                self.failed += 1
                self.outcome = self.outcome or outcome
                continue
            if outcome.status == "failed" and not is_hasty(task, outcome):
                self.others.append((program, outcome))
                self._otherwise.append(outcome)
            if self._hangs and DEADLINE in outcome.skipped:
                self.runs = self._told


class Validate:
    """Runs the script of a failure in clean processes. `reproduced` counts the runs that ended as
    the failure says, `runs` those that were made; `by_value` says how the script checks."""

    name = "validating"

    def __init__(self, task: ReproTask, failure: Failure, by_value: bool = False) -> None:
        self.others: list[tuple[Program, Outcome]] = []
        self.by_value = by_value
        self.reproduced = 0
        self.runs = 0
        self.task = task
        self._failure = failure
        self._asked = self._told = False

    @property
    def finished(self) -> bool:
        return self._told

    @property
    def shows_no_hang(self) -> bool:
        """Whether what was called a hang ended in every clean process that it was given: it was
        slow, on a loaded machine say, and nobody else will see it hang."""
        hang = self._failure.kind is FailureKind.HANG
        return hang and self.runs > 0 and not self.reproduced

    def ask(self) -> Task | None:
        if self._asked:
            return None
        self._asked = True
        return self.task

    def tell(self, task: Task, answer: Answer) -> None:
        self._told = True
        if isinstance(answer, WorkerDied | TaskFailed):
            return
        assert isinstance(answer, list)
        self.runs = len(answer)
        self.reproduced = sum(
            reproduces(run, self._failure, self.by_value)  # type: ignore[arg-type]
            for run in answer
        )


def repro_timeout(failure: Failure, deadlines: Deadlines) -> float:
    """Seconds after which a script hangs: its phase's deadline for a hang, else the total."""
    if failure.kind is FailureKind.HANG:
        return deadlines.of(failure.phase) + INTERPRETER_S
    return deadlines.total + INTERPRETER_S


def hasty(failure: Failure, seconds: dict[str, float], deadlines: Deadlines) -> Deadlines:
    """Deadlines to minimize a hang with: three times what all other phases took together (in
    `seconds`, by phase), at least a quarter of the usual deadline, at most all of it. What sleeps
    does so at once: for that a quarter will do."""
    usual = 3 * sum(took for phase, took in seconds.items() if phase != failure.phase.value)
    limits = {
        phase: min(limit, max(limit / 4, usual))
        for phase, limit in vars(deadlines).items()
        if phase not in ("total", "idle")
    }
    return Deadlines(**limits, total=deadlines.total, idle=deadlines.idle / 4)


def candidate_s(outcome: Outcome, deadlines: Deadlines) -> float:
    """Seconds that a run takes of a program that fails like `outcome` while it is minimized, when a
    hang is given less time than when it was found, and one that sleeps is told by that."""
    failure, took = outcome.failure, outcome.cost.phases
    if failure is None or failure.kind is not FailureKind.HANG:
        return outcome.cost.wall_s
    others = sum(seconds for phase, seconds in took.items() if phase != failure.phase.value)
    shorter = hasty(failure, took, deadlines)
    asleep = failure.raised is not None and failure.raised.message.startswith(ASLEEP)
    left = shorter.of(failure.phase)
    return others + (min(left, shorter.idle) if asleep else left)
