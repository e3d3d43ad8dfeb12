"""What a pool is to do, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from attnfuzz.actors.runs import RunSettings
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


@dataclass(frozen=True)
class ReproTask:
    """Run a script `runs` times in clean processes; gives a `ReproRun` for each.

    `python` is the interpreter, `preload` the files loaded before the script, `timeout_s` the
    seconds each run may take, `idle_s` for how many of them all of its processes may sleep (None:
    all of them), `folder` an existing folder for its temporary files, `processes` how many run it
    together, as `torchrun` would start them, `environment` what is set for it besides.
    """

    text: str
    python: str
    folder: str
    runs: int = 3
    timeout_s: float = 120.0
    idle_s: float | None = None
    preload: tuple[str, ...] = ()
    processes: int = 1
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ReproRun:
    """How a script ended: its exit status (negative: the signal; None: it was killed as one that
    hangs), the last 4 MiB of what it wrote to stderr, and the CPU seconds that it used."""

    status: int | None
    stderr: str
    cpu_s: float = 0.0


Task = ShardTask | RunTask | SetupTask | ReproTask


@dataclass(frozen=True)
class WorkerDied:
    """The workers that ran this task died, every time."""

    attempts: int


@dataclass(frozen=True)
class TaskFailed:
    """The task raised: a defect of attnfuzz, with its traceback."""

    error: str


Answer: TypeAlias = "ShardReport | list[Outcome] | list[ReproRun] | WorkerDied | TaskFailed"


@dataclass(frozen=True)
class Finished:
    """A task that came back."""

    handle: Handle
    task: Task
    result: Answer
