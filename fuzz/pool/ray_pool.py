"""A pool of Ray actors, one per slot, each pinned by Ray's own resources: to its CPU, and to its
GPU or NPU if it is for one. They are on this machine, or on the nodes of a cluster, which come and
go."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError

from attnfuzz.actors.remote import Worker
from attnfuzz.actors.sandbox.parts import HostLost
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.pool.cluster import Cluster
from attnfuzz.fuzz.pool.connecting import connect, start_local
from attnfuzz.fuzz.pool.deaths import Deaths, cause_of, of_node
from attnfuzz.fuzz.pool.environments import Environments
from attnfuzz.fuzz.pool.groups import WorkerGroup, check_devices, fixed_cpus
from attnfuzz.fuzz.pool.slots import Nodes, Running, Slot, wanted
from attnfuzz.fuzz.pool.starting import end, make_board, start
from attnfuzz.fuzz.pool.tasks import (
    MAX_ATTEMPTS,
    Answer,
    Finished,
    Handle,
    NoWorker,
    RunTask,
    SetupTask,
    ShardTask,
    Task,
    TaskFailed,
    WorkerDied,
    target_of,
)

FATAL = (SandboxError, OSError)
"""Exceptions of a worker that no other task would be spared: they end the campaign, unless the
worker's slot has served before. The cause may then be another program, and be gone with it."""

MAX_FAILURES = 4
"""How often in a row a slot that has served before may fail so, each time twice as long after."""

MAX_PAUSE_S = 300.0
"""Seconds after which a node of a cluster on which no worker starts is tried again, at most."""

FIRST_S = 900.0
"""Seconds that a cluster is given to start the first worker: a node may have to be made for it."""


class RayPool:
    """See the module's docstring. A worker that dies is replaced and its task tried again, up to
    `MAX_ATTEMPTS` times in all; one that dies with its node is not counted so (see `deaths`).
    Raises what a worker's sandbox raised when it cannot start; in a cluster only where no worker
    can. `workers` is how many there are, all alike, or the groups of them. `devices` says how many
    accelerators this machine has, by Ray's name, where Ray is not to find out. `deaths` knows of
    those before."""

    def __init__(
        self,
        config: WorkerConfig,
        workers: int | Sequence[WorkerGroup],
        devices: Mapping[str, int] | None = None,
        cluster: Cluster | None = None,
        deaths: Deaths | None = None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        if isinstance(workers, int):
            alike = WorkerGroup(targets=config.targets, count=workers, per_device=config.per_device)
            workers = (alike,)
        self._groups = tuple(workers)
        self.deaths = deaths or Deaths()
        self._handles = self._names = 0
        self._refs: dict[Any, Slot] = {}
        self._waiting: list[Running] = []
        self._done: list[Finished] = []
        self._environments = Environments()
        self._slots: list[Slot] = []
        self._idle: dict[Slot, None] = {}
        self.complaints: dict[str, str] = {}
        """Why no worker starts on a node of the cluster, by where that is."""
        if cluster is None:
            needs = frozenset(name for group in self._groups for name in group.devices)
            start_local(fixed_cpus(self._groups), Path(config.scratch) / "ray", needs, devices)
        else:
            connect(cluster.address, cluster.runtime_env, cluster.ship_code)
        try:
            self._open()
        except BaseException:
            ray.shutdown()
            raise

    def _open(self) -> None:
        self._board = make_board() if self._cluster is not None else None
        self.deaths.board = self._board
        self._nodes = Nodes() if self._cluster is not None else None
        self._nodes_seen = 0
        if self._cluster is None:
            check_devices(self._groups, ray.cluster_resources())
        for group in self._groups:
            for _ in range(group.count or 0):
                self._add(group)
        self._tend()

    # -- what a pool is -------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return len(self._slots)

    @property
    def free(self) -> int:
        return len(self._idle)

    def takes(self, target: str | None, hardware: str | None = None) -> bool:
        return self._idle_for(target, hardware) is not None

    def serves(self, target: str, hardware: str | None = None) -> bool:
        return any(slot.fits(target, hardware) and slot.served for slot in self._slots)

    @property
    def spread(self) -> int:
        return sum(slot.group.nodes > 1 and slot.about is not None for slot in self._slots)

    def states(self) -> dict[str, int]:
        return dict(Counter(slot.state for slot in self._slots))

    def environment(self, target: str | None = None, hardware: str | None = None) -> dict[str, str]:
        if target is not None and target in self._environments:
            return self._environments.of(target, hardware)
        wanted_first = next(iter(self._config.targets))
        began = time.monotonic()
        while not self._environments or (
            wanted_first not in self._environments
            and any(slot.group.serves(wanted_first) for slot in self._slots)
        ):
            self._progress(1.0)
            if self._cluster is not None and time.monotonic() - began > FIRST_S:
                break
        if not self._environments:
            why = next(iter(self.complaints.values()), "it has no room for any")
            raise SandboxError(f"no worker of the cluster starts: {why}")
        return self._environments.first(self._config.targets)

    def submit(self, task: Task, hardware: str | None = None) -> Handle:
        slot = self._idle_for(target_of(task), hardware)
        if slot is None:
            raise RuntimeError("no slot is free")
        self._handles += 1
        self._start(slot, Running(self._handles, task, hardware))
        return self._handles

    def wait(self, timeout: float) -> list[Finished]:
        if not self._done:
            self._progress(timeout)
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        if self._nodes is not None:
            self._nodes.close()
        for slot in self._slots:
            with contextlib.suppress(Exception):  # Ray may be gone already
                end(slot)
        ray.shutdown()

    # -- slots ----------------------------------------------------------------------------------

    def _idle_for(self, target: str | None, hardware: str | None) -> Slot | None:
        only = len(self._groups) == 1  # and serves whatever it is given
        of = None if only else target
        fitting = (slot for slot in reversed(self._idle) if slot.fits(of, hardware))
        if only:
            return next(fitting, None)
        return min(fitting, key=lambda slot: len(slot.group.needs), default=None)

    def _add(self, group: WorkerGroup, node: str | None = None) -> None:
        self._names += 1
        self._slots.append(Slot(group, f"worker {self._names}", node))

    def _tend(self) -> None:
        """Follows the nodes, and starts what is due."""
        if self._nodes is not None and self._nodes.seen != self._nodes_seen:
            self._nodes_seen = self._nodes.seen
            self._follow_nodes(self._nodes.alive)
            self.deaths.settle(self._nodes.alive, self._nodes.taken)
        now = time.monotonic()
        for slot in self._slots:
            if slot.actor is None and slot.due <= now:
                actor = start(Worker, slot, self._config, self._cluster, self._board)
                self._refs[actor.about.remote()] = slot

    def _follow_nodes(self, alive: Mapping[str, Mapping[str, float]]) -> None:
        for slot in list(self._slots):
            if (gone := slot.lost(alive)) is not None:
                self._lose(slot, gone)
        there = Counter((self._groups.index(slot.group), slot.node) for slot in self._slots)
        for (place, node), count in wanted(self._groups, alive).items():
            for _ in range(count - there[place, node]):
                self._add(self._groups[place], node)

    def _lose(self, slot: Slot, node: str) -> None:
        """A node of the slot's worker is gone, and the worker with it."""
        running, machine, taken = slot.running, slot.machine(node), self._was_taken(node)
        for ref in [ref for ref, one in self._refs.items() if one is slot]:
            del self._refs[ref]
        self._empty(slot)
        if slot.node is not None:
            self._slots.remove(slot)
        if running is not None:
            self._again(running, slot, with_machine=machine, blamed=not taken)

    def _empty(self, slot: Slot, pause: float = 0.0) -> None:
        """Takes the worker out; another one is started after `pause` seconds."""
        end(slot)
        slot.about = slot.running = None
        self._idle.pop(slot, None)
        slot.due = time.monotonic() + pause

    # -- tasks ----------------------------------------------------------------------------------

    def _start(self, slot: Slot, running: Running) -> None:
        actor, task = slot.actor, running.task
        if isinstance(task, ShardTask):
            ref = actor.run_shard.remote(self.deaths.spared(task.shard))
        elif isinstance(task, RunTask):
            if self.deaths.any_of(task.programs):
                answer = WorkerDied(running.attempts + running.nodes)
                self._done.append(Finished(running.handle, task, answer))
                return
            ref = actor.run_programs.remote(task.programs, task.settings)
        elif isinstance(task, SetupTask):
            ref = actor.check_setup.remote(task.target, task.function)
        else:
            ref = actor.run_script.remote(task)
        slot.running = running
        self._idle.pop(slot)
        self._refs[ref] = slot

    def _progress(self, timeout: float) -> None:
        """Takes what has come back, waiting up to `timeout` seconds for the first."""
        self._tend()
        self._give_out_again()
        refs = list(self._refs)
        if not refs:
            if self._cluster is not None or self._slots and not self.free:
                time.sleep(min(timeout, 0.2))
            return
        ready, _ = ray.wait(refs, num_returns=1, timeout=timeout)
        if ready:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        for ref in ready:
            if ref in self._refs:  # its slot may have been lost meanwhile
                self._take(ref)
        self._tend()
        self._give_out_again()

    def _give_out_again(self) -> None:
        """Starts what waits for a worker; what none is left for goes back to the owner."""
        for running in [*self._waiting]:
            target, hardware = target_of(running.task), running.hardware
            slot = self._idle_for(target, hardware)
            if slot is not None:
                self._waiting.remove(running)
                self._start(slot, running)
            elif hardware is not None and not any(s.fits(target, hardware) for s in self._slots):
                self._waiting.remove(running)
                self._done.append(Finished(running.handle, running.task, NoWorker()))

    def _take(self, ref: Any) -> None:
        slot = self._refs.pop(ref)
        running = slot.running
        try:
            answer: Any = ray.get(ref)
        except RayTaskError as error:
            if isinstance(cause_of(error), HostLost):
                self._take_death(slot, error)
                return
            if isinstance(cause_of(error), FATAL):
                self._fail(slot, cause_of(error))
                return
            answer = TaskFailed(str(error))
        except RayError as error:
            self._take_death(slot, error)
            return
        if running is None:
            self._take_start(slot, answer)
            return
        slot.running, slot.failures = None, 0
        self._idle[slot] = None
        result: Answer = answer
        self._done.append(Finished(running.handle, running.task, result, slot.hardware))

    def _take_start(self, slot: Slot, about: Any) -> None:
        if isinstance(about, TaskFailed):
            raise RuntimeError(f"a worker raised: {about.error}")
        target, told = slot.group.targets[0], about.environment
        for one in (about, *about.others) if self._cluster is not None else ():
            for key, (others, here) in self._environments.differ(target, one.environment, told):
                what = f"{one.host}: {key} is {here}, and other workers for {target} have {others}"
                self._fail(slot, SandboxError(what))
                return
        slot.about, slot.host, slot.served = about, about.host, True
        slot.hardware = self._hardware(slot)
        self._environments.take(target, slot.hardware, told)
        self._idle[slot] = None
        self.complaints.pop(slot.node or slot.name, None)

    def _hardware(self, slot: Slot) -> str | None:
        """What it has that others may not; None where all of the pool have the same."""
        assert slot.about is not None
        there = self._nodes.alive.get(slot.about.node, {}) if self._nodes is not None else {}
        named = slot.group.hardware(slot.about.environment, there)
        return named if named or len(self._groups) > 1 else None

    def _take_death(self, slot: Slot, error: RayError) -> None:
        running, cause = slot.running, cause_of(error)
        if isinstance(cause, SandboxError):
            self._fail(slot, cause)
            return
        node = cause.node if isinstance(cause, HostLost) else slot.at
        lost = slot.lost(self._nodes.alive) if self._nodes is not None else None
        gone, taken = of_node(error) or lost is not None, self._was_taken(lost or node)
        machine = slot.machine(lost or node)
        if running is None and not gone:
            self._fail(slot, cause)
            return
        silent = isinstance(error, ActorUnavailableError) or isinstance(cause, HostLost)
        if self._cluster is not None and silent and running is not None and not gone:
            self.deaths.suspect(slot, running, node)
        self._empty(slot, pause=0.0 if running is not None else 1.0)
        if running is not None:
            taken |= isinstance(error, RayActorError) and error.preempted
            self._again(running, slot, with_machine=machine if gone else None, blamed=not taken)

    def _was_taken(self, node: str | None) -> bool:
        """Whether the node is gone as somebody meant it."""
        return self._nodes is not None and node in self._nodes.taken

    def _again(
        self, running: Running, slot: Slot, *, with_machine: str | None, blamed: bool
    ) -> None:
        """Gives out once more what a worker died of, which may have died with a machine."""
        if with_machine is not None and self._cluster is not None:
            running.nodes += 1
            again = self.deaths.count(slot, running, with_machine, blamed)
        else:
            running.attempts += 1
            again = running.attempts < MAX_ATTEMPTS
        if again:
            self._waiting.append(running)
        else:
            answer = WorkerDied(running.attempts + running.nodes)
            self._done.append(Finished(running.handle, running.task, answer))

    def _fail(self, slot: Slot, error: BaseException) -> None:
        """The worker's sandbox cannot start. It is tried again after a while, and its task with it;
        raises `error` where its slot has never served, or too often not since it did, and in a
        cluster where no slot ever has."""
        running, failures = slot.running, slot.failures
        slot.failures += 1
        if self._cluster is None:
            if failures >= MAX_FAILURES or not slot.served:
                raise error
            pause = 2.0**failures
        else:
            self.complaints[slot.node or slot.name] = str(error)
            if not self._environments and all(one.failures for one in self._slots):
                raise error
            pause = min(MAX_PAUSE_S, 5 * 2.0**failures)
        self._empty(slot, pause)
        if running is not None:
            self._waiting.append(running)
