"""How long things may take while a finding is looked into: candidates of a hang, and scripts."""

from __future__ import annotations

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.watchdog import ASLEEP
from attnfuzz.fuzz.pool.tasks import RunTask, Task
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome

INTERPRETER_S = 60.0
"""Seconds that a plain process may take on top of a phase's deadline: to import torch, and to
build the precompiled headers that a sandbox shares."""


def first_deadline_only(task: Task, outcome: Outcome) -> bool:
    """Whether `task` made `outcome` a hang at the first missed deadline: for all that is known the
    program is slow."""
    impatient = isinstance(task, RunTask) and not task.settings.confirm_hang
    return impatient and outcome.failure is not None and outcome.failure.kind is FailureKind.HANG


def repro_timeout(failure: Failure, deadlines: Deadlines) -> float:
    """Seconds after which a script hangs: its phase's deadline for a hang, else the total."""
    if failure.kind is FailureKind.HANG:
        return deadlines.of(failure.phase) + INTERPRETER_S
    return deadlines.total + INTERPRETER_S


def shorter_deadlines(
    failure: Failure, seconds: dict[str, float], deadlines: Deadlines
) -> Deadlines:
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
    hang is given less time than when it was found, and one that sleeps is known by that."""
    failure, took = outcome.failure, outcome.cost.phases
    if failure is None or failure.kind is not FailureKind.HANG:
        return outcome.cost.wall_s
    others = sum(seconds for phase, seconds in took.items() if phase != failure.phase.value)
    shorter = shorter_deadlines(failure, took, deadlines)
    asleep = failure.raised is not None and failure.raised.message.startswith(ASLEEP)
    left = shorter.of(failure.phase)
    return others + (min(left, shorter.idle) if asleep else left)
