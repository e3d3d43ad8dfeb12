"""A stage: one step with one finding (confirm, minimize, validate, variants), as a state machine
that gives out tasks and takes the answers. Whoever has a pool drives it."""

from __future__ import annotations

from typing import Protocol

from attnfuzz.fuzz.pool.tasks import Answer, RunTask, Task, TaskFailed, WorkerDied
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program


class Stage(Protocol):
    """See above. `other_failures` are those met on the way that are not the one
    looked into, each with its program."""

    @property
    def other_failures(self) -> list[tuple[Program, Outcome]]:
        """Programs that failed in another way than the one looked into, with their outcomes."""

    @property
    def finished(self) -> bool:
        """Whether every answer that the stage needs has been reported."""

    def next_task(self) -> Task | None:
        """The next task; None when there is none now (more may come after `report`)."""

    def report(self, task: Task, answer: Answer) -> None:
        """Takes the answer to a task that `next_task` gave."""


def outcomes_of(task: Task, answer: Answer) -> list[Outcome]:
    """The outcomes of a RunTask; where no worker survived the task, or it raised,
    each is `lost`."""
    assert isinstance(task, RunTask)
    if isinstance(answer, WorkerDied | TaskFailed):
        why = "the worker died" if isinstance(answer, WorkerDied) else answer.error
        return [Outcome(status="lost", rejection=why) for _ in task.programs]
    assert isinstance(answer, list)
    return [outcome for outcome in answer if isinstance(outcome, Outcome)]
