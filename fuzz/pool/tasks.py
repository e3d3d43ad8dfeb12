"""What a pool is to do, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from attnfuzz.actors.runs import ReproRun, ReproTask, RunSettings
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program

if TYPE_CHECKING:
    from attnfuzz.actors.worker import Shard, ShardReport

Handle = int

MAX_ATTEMPTS = 3
"""How often a task is tried when the worker it runs on dies: once, and twice more."""


@dataclass(frozen=True)
class ShardTask:
    """Draw and run a shard's programs; gives a `ShardReport`."""

    shard: Shard


@dataclass(frozen=True)
class RunTask:
    """Run programs one after the other, as `settings` say; gives an `Outcome` for each."""

    programs: tuple[Program, ...]
    settings: RunSettings = field(default_factory=RunSettings)


@dataclass(frozen=True)
class SetupTask:
    """Do what comes before programs of `target`: execute preload files, import `function`
    ("module:name"). Gives one `Outcome`, "passed" or "not_run"."""

    target: str
    function: str | None = None


Task = ShardTask | RunTask | SetupTask | ReproTask


def target_of(task: Task) -> str | None:
    """The target that a task needs a worker of; None where any will do."""
    if isinstance(task, ShardTask):
        return task.shard.target
    if isinstance(task, RunTask):
        return task.settings.target
    return task.target


@dataclass(frozen=True)
class WorkerDied:
    """The workers that ran this task died, every time."""

    attempts: int


@dataclass(frozen=True)
class NoWorker:
    """The worker that ran this task died, and none with the hardware that it needs is left."""


@dataclass(frozen=True)
class TaskFailed:
    """The task raised: a defect of attnfuzz, with its traceback."""

    error: str


Answer: TypeAlias = (
    "ShardReport | list[Outcome] | list[ReproRun] | WorkerDied | NoWorker | TaskFailed"
)


@dataclass(frozen=True)
class Finished:
    """A task that came back, from a worker with that `hardware` (None: all have the same)."""

    handle: Handle
    task: Task
    result: Answer
    hardware: str | None = None


def cpu_s(answer: Answer) -> float:
    """CPU seconds that a task's programs or scripts used, as far as it came back."""
    if not isinstance(answer, list):
        return 0.0
    return sum(one.cpu_s if isinstance(one, ReproRun) else one.cost.cpu_s for one in answer)
