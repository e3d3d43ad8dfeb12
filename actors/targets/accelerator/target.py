"""Accelerators that are there: GPUs and NPUs, which run programs in a process each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from attnfuzz.actors.sandbox.job import Deadlines, Limits
from attnfuzz.actors.targets.accelerator.devices import DEVICES, Device
from attnfuzz.actors.targets.target import Probe, Target
from attnfuzz.generators.strategies.swarm import Place

COLD_START = 2.0
"""How many times as long as on a CPU everything may take: the device is started, and all of
Inductor and Triton is cold, in each program's process."""

MEMORY_MB = 16384
"""Of the CPU's, for a process that uses a device: CUDA maps memory of its own."""


@dataclass(frozen=True)
class AcceleratorTarget(Target):
    """An accelerator that is there."""

    @property
    def _device(self) -> Device:
        return DEVICES[self.name]

    def kernels(self, preload: bool = False) -> tuple[str, ...]:
        return self._device.kernels or (*super().kernels(preload), *self._device.own)

    def deadlines(self, on_cpu: Deadlines) -> Deadlines:
        """Sleeping processes say nothing where the device works for them."""
        return replace(on_cpu.times(COLD_START), idle=math.inf)

    def environment(self, other: Mapping[str, str]) -> dict[str, str]:
        if other.get("target", self.name) == self.name:
            return {**other, "target": self.name}
        return super().environment(other)

    def _missing(self, probe: Probe) -> str | None:
        package, torch = self._device.module, f"torch {probe['torch']}"
        if self.name == "cuda" and not probe["cuda_build"]:
            return f"{torch} is built without CUDA"
        if package != "torch" and not probe[package]:
            return f"{package} is not installed in the toolchain"
        if probe[self.name] is None:
            label = probe["maker"] if self.name == "cuda" else self._device.label
            why = f": {probe[f'{self.name}_error']}" if f"{self.name}_error" in probe else ""
            return f"{torch} finds no {label} device{why}"
        if self._device.is_gpu and not probe["triton"]:
            return "triton is not installed in the toolchain"
        return None

    def _found(self, probe: Probe) -> str:
        return f"{probe[self.name]}; torch {probe['torch']}"


TARGETS = tuple(
    AcceleratorTarget(
        name,
        name,
        place=Place(name, gpu=device.is_gpu, ranks="simulated", as_trained=device.is_gpu),
        limits=Limits(memory_mb=MEMORY_MB),
        ranks_seen="simulated" if device.simulates else "none",
        deterministic_gradients=False,
        seeded_by_cpu=name == "cuda",
        heeds_kernel_options=True,
        starts_cold=True,
        can_confirm=True,
        ray_resource=device.resource,
        device_variables=device.visible,
    )
    for name, device in DEVICES.items()
)
