"""Where tasks run: a pool of executors, each with its own sandbox.

A pool has `size` slots and holds one task in each; its owner submits while `free` is above 0 and
takes what has finished from `wait`. `RayPool` keeps one Ray actor per slot, `InlinePool` one
executor in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from attnfuzz.actors.scripts import run_repro
from attnfuzz.fuzz.pool.tasks import (
    Answer,
    Finished,
    Handle,
    RunTask,
    SetupTask,
    ShardTask,
    Task,
    target_of,
)

if TYPE_CHECKING:
    from attnfuzz.actors.worker import Executor, WorkerConfig


class Pool(Protocol):
    """See the module's docstring."""

    @property
    def size(self) -> int:
        """How many tasks may run at the same time."""

    @property
    def free(self) -> int:
        """Slots without a task."""

    def takes(self, target: str | None, hardware: str | None = None) -> bool:
        """Whether a slot is free for a task of that target, on that hardware (None: any)."""

    def serves(self, target: str, hardware: str | None = None) -> bool:
        """Whether it has workers for that target, free or not."""

    @property
    def spread(self) -> int:
        """How many of its workers are on several nodes each, and serve."""

    def states(self) -> dict[str, int]:
        """How many workers are busy, idle, starting, or waiting to be started again."""

    def environment(self, target: str | None = None, hardware: str | None = None) -> dict[str, str]:
        """What the programs run on: versions of Python, torch, compiler; the machine. Those of a
        `target`, or of one `hardware` of it, may run on other machines than others."""

    def submit(self, task: Task, hardware: str | None = None) -> Handle:
        """Start a task, where `hardware` is named on a worker that has it. Raises RuntimeError when
        no slot is free for it."""

    def wait(self, timeout: float) -> list[Finished]:
        """What has finished, waiting up to `timeout` seconds for the first."""

    def close(self) -> None:
        """Abandon what runs, and end every process of the pool."""


def perform(executor: Executor, task: Task) -> Answer:
    """Run one task on an executor."""
    if isinstance(task, ShardTask):
        return executor.run_shard(task.shard)
    if isinstance(task, RunTask):
        return executor.run_programs(task.programs, task.settings)
    if isinstance(task, SetupTask):
        return executor.check_setup(task.target, task.function)
    return run_repro(task)


class InlinePool:
    """One executor in this process: a task runs when somebody waits for it."""

    size = 1
    spread = 0

    def __init__(self, config: WorkerConfig) -> None:
        from attnfuzz.actors.worker import Executor

        self._executor = Executor(config)
        self._waiting: tuple[Handle, Task] | None = None
        self._handles = 0

    @property
    def free(self) -> int:
        return 0 if self._waiting else 1

    def takes(self, target: str | None, hardware: str | None = None) -> bool:
        return self.free > 0

    def serves(self, target: str, hardware: str | None = None) -> bool:
        return True

    def states(self) -> dict[str, int]:
        return {"idle" if self.free else "busy": 1}

    def environment(self, target: str | None = None, hardware: str | None = None) -> dict[str, str]:
        return self._executor.environment

    def submit(self, task: Task, hardware: str | None = None) -> Handle:
        if self._waiting:
            raise RuntimeError("no slot is free")
        self._handles += 1
        self._waiting = (self._handles, task)
        return self._handles

    def wait(self, timeout: float) -> list[Finished]:
        if self._waiting is None:
            return []
        (handle, task), self._waiting = self._waiting, None
        return [Finished(handle, task, perform(self._executor, task))]

    def close(self) -> None:
        self._executor.close()


def open_pool(config: WorkerConfig, workers: int) -> Pool:
    """`workers` Ray actors, or for one worker an executor in this process."""
    if workers == 1:
        return InlinePool(config)
    from attnfuzz.fuzz.pool.ray_pool import RayPool

    return RayPool(config, workers)


def run_all(pool: Pool, tasks: Sequence[Task]) -> list[Finished]:
    """Run tasks on an otherwise idle pool; results in the order of `tasks`."""
    waiting, done = list(enumerate(tasks)), dict[int, Finished]()
    position: dict[Handle, int] = {}
    while len(done) < len(tasks):
        while (one := next((o for o in waiting if pool.takes(target_of(o[1]))), None)) is not None:
            waiting.remove(one)
            position[pool.submit(one[1])] = one[0]
        for finished in pool.wait(1.0):
            done[position[finished.handle]] = finished
    return [done[index] for index in range(len(tasks))]
