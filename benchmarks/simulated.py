"""Simulated workers: they draw programs as real ones do, and run none.

A program sleeps for some time instead, and what becomes of it is decided by its parts, so that two
runs of one seed agree. Everything around it is real: Ray's actors, the scratch folder and its
reaper, a process below the worker that has to die with it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import psutil
import ray

from attnfuzz.actors.remote import WorkerProcess
from attnfuzz.actors.runs import ReproRun, ReproTask, RunSettings
from attnfuzz.actors.sandbox.parts import Spread
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import (
    Failure,
    FailureKind,
    Layer,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Program

PROGRAM_S = 0.2
"""Seconds that a program sleeps."""

BELOW = ("sleep", "86400")
"""The process below each worker."""

CLUSTER = "SIMULATED_CLUSTER"
"""An environment variable of it: the address of the worker's cluster."""

ENVIRONMENT = {"torch": "simulated", "python": "simulated", "target": "cpu"}


def below(address: str) -> list[psutil.Process]:
    """The processes below workers of the cluster at `address`, whether or not these are there."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if tuple(process.info["cmdline"] or ()) == BELOW:
                found += [process] if process.environ().get(CLUSTER) == address else []
    return found


class _Nothing:
    """A sandbox that is none."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def harness_cpu_s(self) -> float:
        return 0.0

    def close(self) -> None:
        return


class SimulatedExecutor(Executor):
    """See the module's docstring. A program sleeps for so many `seconds`."""

    seconds = PROGRAM_S

    def __init__(
        self, config: WorkerConfig, at: Callable[[str], None], spread: Spread | None = None
    ) -> None:
        cluster = ray.get_runtime_context().gcs_address
        self._below = subprocess.Popen(BELOW, env=os.environ | {CLUSTER: cluster})
        super().__init__(config, at, spread)

    def _sandbox(self, target: str) -> Any:
        card = {} if TARGETS[target].ray_resource is None else {"card": _card()}
        return _Nothing(ENVIRONMENT | {"target": target} | card)

    def _run_one(self, program: Program, settings: RunSettings, native: bool) -> Outcome:
        self._at(program_id(program))
        time.sleep(self.seconds)
        node = ray.get_runtime_context().get_node_id()
        return judged(program, (f"{settings.target or self._first} on {node}",))

    def close(self) -> None:
        self._below.kill()
        super().close()


def _card() -> str:
    """What the node's card would be called, by its accelerator type."""
    here = ray.get_runtime_context().get_node_id()
    there = next(one["Resources"] for one in ray.nodes() if one["NodeID"] == here)
    types = [name.partition(":")[2] for name in there if name.startswith("accelerator_type:")]
    return f"simulated {types[0]}" if types else "simulated card"


def judged(program: Program, features: tuple[str, ...] = ()) -> Outcome:
    """What a program does: three faults, told by its parts."""
    if program.mask is not None and program.training is not None:
        return _failed("masks are broken in training", features)
    if program.shape.head_dim > 32 and program.compile is not None:
        return _failed("heads are broken", features)
    if program.shape.batch > 2:
        return _failed("batches are broken", features)
    return Outcome(status="passed", features=features)


def _failed(message: str, features: tuple[str, ...]) -> Outcome:
    raised = Raised(type="RuntimeError", message=message)
    failure = Failure(
        kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, layer=Layer.INDUCTOR, raised=raised
    )
    return Outcome(status="failed", failure=failure, features=features)


def _finds_nothing(names: tuple[str, ...], python: str) -> dict[str, str]:
    return {}


class SimulatedProcess(WorkerProcess):
    """A worker with such an executor, whose scripts fail as their programs do."""

    executor = SimulatedExecutor
    found_by = staticmethod(_finds_nothing)

    def run_script(self, task: ReproTask) -> list[ReproRun]:
        return [ReproRun(1, "RuntimeError: simulated")] * task.runs


SimulatedWorker: Any = ray.remote(num_cpus=1)(SimulatedProcess)
