"""The worker as a Ray actor."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import ray

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox import confine
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.shard import Shard, ShardReport
from attnfuzz.actors.targets import gpu_assignment
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program


@ray.remote(num_cpus=1, max_restarts=2)
class Worker:
    """An `Executor` in a process of its own, which is a subreaper: what escapes a dead zygote
    becomes its child. It dies with the process that Ray started it from."""

    def __init__(self, config: WorkerConfig) -> None:
        """Raises SandboxError when programs cannot run here, or it sees other devices than its
        own."""
        assigned = ray.get_runtime_context().get_accelerator_ids()
        if (wrong := gpu_assignment.not_pinned(config.targets, assigned)) is not None:
            raise SandboxError(wrong)
        confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
        confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
        self._executor = Executor(config)

    def environment(self) -> dict[str, str]:
        """What the programs of the first target run on, as `Executor.environment`."""
        return self._executor.environment

    def pid(self) -> int:
        """The id of the actor's process."""
        return os.getpid()

    def visible_devices(self) -> dict[str, str]:
        """The variables that say which devices it sees."""
        return gpu_assignment.visible()

    def run_shard(self, shard: Shard) -> ShardReport:
        """As `Executor.run_shard`."""
        return self._executor.run_shard(shard)

    def check_setup(self, target: str, function: str | None) -> list[Outcome]:
        """As `Executor.check_setup`."""
        return self._executor.check_setup(target, function)

    def run_programs(self, programs: Sequence[Program], settings: RunSettings) -> list[Outcome]:
        """As `Executor.run_programs`."""
        return self._executor.run_programs(programs, settings)

    def close(self) -> None:
        """Ends the sandboxes; the actor itself ends by ray.kill."""
        self._executor.close()
