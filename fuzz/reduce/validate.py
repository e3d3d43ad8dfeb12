"""Validation: the script of a minimized failure is run by itself, as anybody would run it."""

from __future__ import annotations

from attnfuzz.fuzz.pool.tasks import Answer, ReproTask, Task, TaskFailed, WorkerDied
from attnfuzz.fuzz.reduce.evaluate import reproduces
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome
from attnfuzz.generators.model.program import Program


class Validate:
    """Runs the script of a failure in clean processes. `reproduced` counts the runs that ended as
    the failure says, `runs` those that were made; `by_value` says how the script checks."""

    def __init__(self, task: ReproTask, failure: Failure, by_value: bool = False) -> None:
        self.other_failures: list[tuple[Program, Outcome]] = []
        self.by_value = by_value
        self.reproduced = 0
        self.runs = 0
        self.task = task
        self._failure = failure
        self._given_out = self._reported = False

    @property
    def finished(self) -> bool:
        return self._reported

    @property
    def shows_no_hang(self) -> bool:
        """Whether what was called a hang ended in every clean process that it was given: it was
        slow, on a loaded machine say, and nobody else will see it hang."""
        hang = self._failure.kind is FailureKind.HANG
        return hang and self.runs > 0 and not self.reproduced

    def next_task(self) -> Task | None:
        if self._given_out:
            return None
        self._given_out = True
        return self.task

    def report(self, task: Task, answer: Answer) -> None:
        self._reported = True
        if isinstance(answer, WorkerDied | TaskFailed):
            return
        assert isinstance(answer, list)
        self.runs = len(answer)
        self.reproduced = sum(
            reproduces(run, self._failure, self.by_value)  # type: ignore[arg-type]
            for run in answer
        )
