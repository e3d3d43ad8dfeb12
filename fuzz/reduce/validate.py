"""Validation: the script of a minimized failure is run by itself, as anybody would run it."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.fuzz.pool.tasks import Answer, ReproRun, ReproTask, Task, TaskFailed, WorkerDied
from attnfuzz.fuzz.reduce.evaluate import reproduces
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome
from attnfuzz.generators.model.program import Program


class Validate:
    """Runs the script of a failure in clean processes. `reproduced` counts the runs that ended as
    the failure says, `runs` those that were made; `by_value` says how the script checks.

    A script of several processes that fails as it should is not run again: every process imports
    torch, so that three runs of four ranks cost more CPU seconds than all that was minimized."""

    def __init__(self, task: ReproTask, failure: Failure, by_value: bool = False) -> None:
        self.other_failures: list[tuple[Program, Outcome]] = []
        self.by_value = by_value
        self.reproduced = 0
        self.runs = 0
        self.task = task
        self._failure = failure
        self._waits = self._finished = False

    @property
    def finished(self) -> bool:
        return self._finished

    @property
    def shows_no_hang(self) -> bool:
        """Whether what was called a hang ended in every clean process that it was given: it was
        slow, on a loaded machine say, and nobody else will see it hang."""
        hang = self._failure.kind is FailureKind.HANG
        return hang and self.runs > 0 and not self.reproduced

    def next_task(self) -> Task | None:
        if self._waits or self._finished:
            return None
        self._waits = True
        left = self.task.runs - self.runs
        first = self.task.processes > 1 and not self.runs
        return replace(self.task, runs=min(left, 1) if first else left)

    def report(self, task: Task, answer: Answer) -> None:
        self._waits = False
        if isinstance(answer, WorkerDied | TaskFailed):
            self._finished = True
            return
        assert isinstance(answer, list)
        runs: list[ReproRun] = answer  # type: ignore[assignment]
        self.runs += len(runs)
        self.reproduced += sum(reproduces(run, self._failure, self.by_value) for run in runs)
        hung = bool(runs) and runs[-1].status is None  # each time would take minutes
        self._finished = hung or bool(self.reproduced) or self.runs >= self.task.runs
