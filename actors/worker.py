"""The worker: draws the programs of a shard, has its sandbox run them, and reports.

`actors.remote.Worker` is an `Executor` as a Ray actor. Neither imports torch.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from actors import verdict
from actors.job import Deadlines, Job, Limits
from actors.sandbox import Sandbox, SandboxError
from actors.shard import Shard, ShardReport, Tally
from actors.virtual.cards import CARDS
from generators.kernels import refusals
from generators.outcome import Outcome
from generators.program import Program
from generators.render import source
from generators.shards import shard_programs

__all__ = ["Executor", "Shard", "ShardReport", "Until", "WorkerConfig"]

TARGETS_THAT_RUN = ("cpu", *CARDS)

Until = Literal["failed", "not failed"] | None


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """What a worker is. `toolchain` is a Python interpreter with torch, `scratch` the root of a
    `Scratch`, `preload` paths of files that the sandbox executes before each program."""

    scratch: str
    toolchain: str = sys.executable
    target: str = "cpu"
    preload: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    deadlines: Deadlines = field(default_factory=Deadlines)


class Executor:
    """Runs programs and shards in one sandbox. `environment` says on what."""

    def __init__(self, config: WorkerConfig) -> None:
        """Starts the sandbox. Raises SandboxError when programs cannot run here."""
        if config.target not in TARGETS_THAT_RUN:
            raise SandboxError(
                f"target {config.target}: programs run on {', '.join(TARGETS_THAT_RUN)} only so far"
            )
        self._config = config
        self._sandbox = Sandbox(
            config.toolchain, config.limits, config.scratch, config.preload, target=config.target
        )

    @property
    def environment(self) -> dict[str, str]:
        return self._sandbox.environment | {"target": self._config.target}

    def run_shard(self, shard: Shard) -> ShardReport:
        """Draws the programs of `shard`, runs each, and reports what is new."""
        began, harness = time.monotonic(), self._harness_cpu_s()
        tally = Tally(shard)
        drawn = shard_programs(
            shard.campaign_seed, shard.index, shard.size, dict(shard.profiles), shard.functions
        )
        for program in drawn:
            tally.add(program, self._run(program, self._config.deadlines, True))
        return tally.report(time.monotonic() - began, self._harness_cpu_s() - harness)

    def run_programs(
        self,
        programs: Sequence[Program],
        *,
        deadlines: Deadlines | None = None,
        confirm_hang: bool = True,
        until: Until = None,
    ) -> list[Outcome]:
        """An outcome for each program, in order. `deadlines` replace the worker's own; without
        `confirm_hang` a missed deadline is a hang at once; `until` ends it after the first that
        did, or did not, fail."""
        allowed = deadlines or self._config.deadlines
        outcomes: list[Outcome] = []
        for program in programs:
            outcomes.append(self._run(program, allowed, confirm_hang))
            word = "failed" if outcomes[-1].status == "failed" else "not failed"
            if word == until:
                break
        return outcomes

    def _run(self, program: Program, deadlines: Deadlines, confirm_hang: bool) -> Outcome:
        try:
            target = self._config.target
            text = source(program, "cuda" if target in CARDS else "cpu")
            job = Job.of(program, refusals.for_program(program), deadlines, target)
        except Exception:  # whatever rendering raises is our defect, and is reported as one
            return verdict.of_unrendered(traceback.format_exc())
        return self._sandbox.run(text, job, confirm_hang=confirm_hang)

    def _harness_cpu_s(self) -> float:
        return time.process_time() + self._sandbox.harness_cpu_s()

    def close(self) -> None:
        """Ends the sandbox and everything in it."""
        self._sandbox.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
