"""A simulated worker whose programs sleep for long enough that its machine can die meanwhile."""

from __future__ import annotations

from typing import Any

import ray

from benchmarks.simulated import SimulatedExecutor, SimulatedProcess


class LongExecutor(SimulatedExecutor):
    """See the module's docstring."""

    seconds = 60.0


class LongProcess(SimulatedProcess):
    """A worker with such an executor."""

    executor = LongExecutor


LongWorker: Any = ray.remote(num_cpus=1)(LongProcess)
