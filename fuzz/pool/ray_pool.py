"""A pool of Ray actors, one per slot, each pinned by Ray's own resources: to its CPU, and to its
GPU or NPU if it is for one."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError, WorkerCrashedError
from ray.job_config import JobConfig

import attnfuzz
from attnfuzz.actors.remote import Worker
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.targets.gpu_assignment import resources_of
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.pool.scripts import run_repro
from attnfuzz.fuzz.pool.tasks import (
    MAX_ATTEMPTS,
    Answer,
    Finished,
    Handle,
    ReproTask,
    RunTask,
    SetupTask,
    ShardTask,
    Task,
    TaskFailed,
    WorkerDied,
)

OBJECT_STORE_BYTES = 100 * 1024 * 1024
"""Reports are small; Ray's default would take a third of the machine's memory."""

SHARES = 10_000
"""Into how many parts Ray divides one of a resource."""

FATAL = (SandboxError, OSError)
"""Exceptions of a worker that no other task would be spared: they end the campaign, unless the
worker's slot has served before. The cause may then be another program, and be gone with it."""

MAX_FAILURES = 4
"""How often in a row a slot that has served before may fail so, each time twice as long after."""


@dataclass
class _Running:
    handle: Handle
    task: Task
    slot: int
    attempts: int = 1


class RayPool:
    """See the module's docstring. A worker that dies is replaced and its task tried again, up to
    `MAX_ATTEMPTS` times in all. Raises what a worker's sandbox raised when it cannot start.
    `devices` says how many accelerators there are, by Ray's name, where Ray is not to find out."""

    def __init__(
        self, config: WorkerConfig, workers: int, devices: Mapping[str, int] | None = None
    ) -> None:
        self.size = workers
        self._config = config
        self._needs = resources_of(config.targets)
        self._handles = 0
        self._running: dict[Any, _Running] = {}
        _start_ray(workers, Path(config.scratch) / "ray", self._needs, devices)
        self._check_devices(workers)
        self._actors = [self._new_actor() for _ in range(workers)]
        self._idle = list(range(workers))[::-1]
        self._failures: dict[int, int] = {}

    @property
    def free(self) -> int:
        return len(self._idle)

    def environment(self) -> dict[str, str]:
        try:
            return ray.get(self._actors[0].environment.remote())
        except (RayActorError, RayTaskError) as error:
            raise _cause(error) from error

    def submit(self, task: Task) -> Handle:
        if not self._idle:
            raise RuntimeError("no slot is free")
        self._handles += 1
        self._start(_Running(self._handles, task, self._idle.pop()))
        return self._handles

    def wait(self, timeout: float) -> list[Finished]:
        if not self._running:
            return []
        refs = list(self._running)
        ready, _ = ray.wait(refs, num_returns=1, timeout=timeout)
        if ready:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        finished = [self._take(ref) for ref in ready]
        return [one for one in finished if one is not None]

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        ray.shutdown()

    def _check_devices(self, workers: int) -> None:
        there = ray.cluster_resources()
        for name in sorted(self._needs):
            found, each = int(there.get(name, 0)), self._config.per_device
            if found * each < workers:
                ray.shutdown()
                raise SandboxError(
                    f"workers: {workers} need {-(-workers // each)} {name} with workers_per_device "
                    f"{each}, and Ray finds {found}"
                )

    def _new_actor(self) -> Any:
        share = SHARES // self._config.per_device / SHARES
        others = {name: share for name in self._needs if name != "GPU"}
        # We replace dead workers ourselves, with the task they died of counted.
        options = Worker.options(  # type: ignore[attr-defined]
            max_restarts=0, num_gpus=share if "GPU" in self._needs else 0, resources=others
        )
        return options.remote(self._config)

    def _start(self, running: _Running) -> None:
        actor, task = self._actors[running.slot], running.task
        if isinstance(task, ShardTask):
            ref = actor.run_shard.remote(task.shard)
        elif isinstance(task, RunTask):
            ref = actor.run_programs.remote(task.programs, task.settings)
        elif isinstance(task, SetupTask):
            ref = actor.check_setup.remote(task.target, task.function)
        elif isinstance(task, ReproTask):  # holds the slot, so that its CPU is the actor's
            if self._needs:  # the script is to see what its worker sees
                task = replace(task, environment=tuple(self._visible(running.slot).items()))
            ref = ray.remote(num_cpus=0, max_retries=0)(run_repro).remote(task)
        self._running[ref] = running

    def _visible(self, slot: int) -> dict[str, str]:
        """The variables that say which devices the worker in `slot` sees."""
        try:
            return ray.get(self._actors[slot].visible_devices.remote())
        except RayActorError:  # it died while it was idle
            self._actors[slot] = self._new_actor()
        try:
            return ray.get(self._actors[slot].visible_devices.remote())
        except RayActorError as error:
            raise _cause(error) from error

    def _take(self, ref: Any) -> Finished | None:
        running = self._running.pop(ref)
        answer: Answer
        try:
            answer = ray.get(ref)
        except (RayActorError, WorkerCrashedError) as error:
            if isinstance(error, RayActorError) and error.actor_init_failed:
                self._again(running, _cause(error))
                return None
            self._replace(running.slot)
            if running.attempts < MAX_ATTEMPTS:
                running.attempts += 1
                self._start(running)
                return None
            answer = WorkerDied(running.attempts)
        except RayTaskError as error:
            if isinstance(_cause(error), FATAL):
                self._again(running, _cause(error))
                return None
            answer = TaskFailed(str(error))
        self._failures[running.slot] = 0
        self._idle.append(running.slot)
        return Finished(running.handle, running.task, answer)

    def _again(self, running: _Running, error: BaseException) -> None:
        """Starts a task again with another worker after a while; raises `error` where its slot has
        never served, or too often not since it did."""
        failures = self._failures.get(running.slot, MAX_FAILURES)
        if failures >= MAX_FAILURES:
            raise error
        self._failures[running.slot] = failures + 1
        time.sleep(2**failures)
        self._replace(running.slot)
        self._start(running)

    def _replace(self, slot: int) -> None:
        ray.kill(self._actors[slot])
        self._actors[slot] = self._new_actor()


def _cause(error: RayActorError | RayTaskError) -> BaseException:
    """What a worker raised, without Ray's wrapping; of one that could not start Ray keeps the text
    only."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        return cause if isinstance(cause, BaseException) else error
    last = str(error).strip().splitlines()[-1]
    _, found, sentence = last.partition("SandboxError: ")
    return SandboxError(sentence) if found and error.actor_init_failed else error


def _start_ray(
    workers: int, folder: Path, needs: frozenset[str], devices: Mapping[str, int] | None
) -> None:
    """A Ray of our own on this machine, quiet, with everything it writes under `folder`. It looks
    for the accelerators that workers need, unless `devices` says what there is."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Its monitor judges the whole machine's memory; ours is limited per sandbox.
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    # Or its agents, when they change their titles, wipe the marker that the reaper looks for.
    os.environ.setdefault("SPT_NOENV", "1")
    # Ray's own is 15: beside other work programs would starve, and their deadlines go on.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Workers shall find us where we are. Not by PYTHONPATH: the toolchain's interpreter, which they
    # start, would look there too, and find our torch, or our folders, before its own.
    root = str(Path(attnfuzz.__file__).resolve().parents[1])
    given = dict(devices or {})
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    try:
        with contextlib.chdir(empty):  # Ray puts the current folder first on its workers' path
            ray.init(
                address="local",
                num_cpus=workers,
                num_gpus=None if "GPU" in needs and devices is None else given.get("GPU", 0),
                resources={name: n for name, n in given.items() if name != "GPU"} or None,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                job_config=JobConfig(_py_driver_sys_path=[root]),
                _temp_dir=str(folder),
            )
    except Exception as error:  # whatever it is, the machine has it, not a program
        ray.shutdown()
        raise SandboxError(f"Ray cannot be started: {str(error).strip()}") from error
