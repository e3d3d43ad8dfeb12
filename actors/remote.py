"""The worker as a Ray actor."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray

from attnfuzz.actors.hosts import Hosts, Placement, interface_of
from attnfuzz.actors.node import About, Away, found_by, settle
from attnfuzz.actors.runs import ReproRun, ReproTask, RunSettings
from attnfuzz.actors.sandbox import confine, cpus
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.actors.sandbox.parts import HostLost, Link, Order, PartEnd, State
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.scripts import run_repro
from attnfuzz.actors.shard import Shard, ShardReport
from attnfuzz.actors.targets import gpu_assignment
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program

NOTED_S = 2.0
"""Seconds that a program waits for the board; one that cannot be reached does not stop it."""


@ray.remote(num_cpus=0)
class Board:
    """On the controller's machine: which program each worker is at. Where a machine dies nobody
    else knows."""

    def __init__(self) -> None:
        self._at: dict[str, str] = {}

    def note(self, worker: str, program: str) -> None:
        """`worker` begins the program with that id."""
        self._at[worker] = program

    def at(self, worker: str) -> str | None:
        """The id of the program at which the worker was last; it is forgotten."""
        return self._at.pop(worker, None)


class WorkerProcess:
    """An `Executor` in a process of its own, which is a subreaper: what escapes a dead zygote
    becomes its child. It dies with the process that Ray started it from."""

    executor: type[Executor] = Executor
    found_by = staticmethod(found_by)

    def __init__(
        self,
        config: WorkerConfig,
        away: Away | None = None,
        board: Any = None,
        name: str = "",
        placement: Placement | None = None,
    ) -> None:
        """With `away` it shares no disk with the controller. It tells the `board` what it, called
        `name`, is at. With a `placement` it starts hosts on the other nodes of that, over which it
        spreads the ranks of programs. Raises SandboxError when programs cannot run here or there,
        or it sees other devices than its own."""
        assigned = ray.get_runtime_context().get_accelerator_ids()
        if (wrong := gpu_assignment.not_pinned(config.targets, assigned)) is not None:
            raise SandboxError(wrong)
        confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
        confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
        self._board, self._name = board, name
        self._scratch: Scratch | None = None
        self._targets: dict[str, str] = {}
        self._hosts = Hosts(type(self), placement, config, away) if placement is not None else None
        self._link = Link()
        if away is not None:
            config, self._scratch = settle(config, away)
            self._targets = self.found_by(config.targets, config.toolchain)
        self._cpus = cpus.HeldCpus(_own_cpus(config), cpus.here())
        config = replace(config, cpus=self._cpus.numbers)
        self._config = config
        spread = self._hosts.spread(config.toolchain) if self._hosts is not None else None
        self._executor = self.executor(config, self._note, spread)
        self._others = self._hosts.about() if self._hosts is not None else ()

    def _note(self, program: str) -> None:
        print(f"attnfuzz: program {program}", flush=True)  # by it Ray's log of this worker is found
        if self._board is not None:
            with contextlib.suppress(Exception):  # whatever is wrong there, programs go on
                ray.get(self._board.note.remote(self._name, program), timeout=NOTED_S)

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Notes when a task ends, unless another node may have died of the program it was at."""
        try:
            yield
        except HostLost:
            raise
        except BaseException:
            self._note_end()
            raise
        self._note_end()

    def _note_end(self) -> None:
        if self._board is not None:
            self._board.at.remote(self._name)

    def about(self) -> About:
        """What and where it is."""
        return About(
            node=ray.get_runtime_context().get_node_id(),
            host=platform.node(),
            pid=os.getpid(),
            environment=self._executor.environment,
            targets=self._targets,
            devices=gpu_assignment.visible(),
            others=self._others,
        )

    def run_shard(self, shard: Shard) -> ShardReport:
        """As `Executor.run_shard`."""
        with self._noted():
            return self._executor.run_shard(shard)

    def check_setup(self, target: str, function: str | None) -> list[Outcome]:
        """As `Executor.check_setup`."""
        return self._executor.check_setup(target, function)

    def run_programs(self, programs: Sequence[Program], settings: RunSettings) -> list[Outcome]:
        """As `Executor.run_programs`."""
        with self._noted():
            return self._executor.run_programs(programs, settings)

    def run_part(self, run: str, source: str, job: Job, toolchain: str | None) -> PartEnd:
        """As `Executor.run_part`; the leader's questions are about the run of that name."""
        self._link.begin(run)
        assert job.part is not None
        part = replace(job.part, interface=interface_of(ray.util.get_node_ip_address()))
        return self._executor.run_part(source, replace(job, part=part), toolchain, self._link)

    def attend(self, run: str, order: Order) -> State:
        """Takes what the leader orders; how the part is."""
        return self._link.answer(run, order)

    def run_script(self, task: ReproTask) -> list[ReproRun]:
        """As `run_repro`, with the toolchain and the files that are here."""
        if self._scratch is not None:
            config = self._config
            task = replace(
                task, python=config.toolchain, folder=config.scratch, preload=config.preload
            )
        return run_repro(replace(task, cpus=self._config.cpus))

    def close(self) -> None:
        """Ends the sandboxes; the actor itself ends by ray.kill."""
        self._executor.close()
        if self._scratch is not None:
            self._scratch.close()


def _own_cpus(config: WorkerConfig) -> int:
    """How many CPUs the worker has to itself: as many as it is to have, or none where Ray has given
    out fewer than this machine has. The others are somebody else's, who may have numbered them
    alike."""
    if not config.own_cpus:
        return 0
    here = ray.get_runtime_context().get_node_id()
    nodes = [one["Resources"] for one in ray.nodes() if one["NodeID"] == here]
    given = sum(one.get("CPU", 0.0) for one in nodes)
    return config.own_cpus if given >= len(cpus.here()) else 0


Worker: Any = ray.remote(num_cpus=1, max_restarts=2)(WorkerProcess)
