"""A program's way through the child of a target that is a device: a GPU or an NPU.

Arguments are made on the CPU, where the reference and its yardstick are computed, and copied to
the device with their strides, offsets and shared memory. What a run gives is copied back, for
which the device has to be done: an error that it reports late is raised inside the run that it
belongs to.
The process has the device for itself, and is gone with it after one program, whatever it broke.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from attnfuzz.actors.child.execute import Execution
from attnfuzz.actors.child.outcomes import Data
from attnfuzz.actors.child.phases import Phases
from attnfuzz.actors.child.program_module import Outputs
from attnfuzz.actors.child.to_device import ToDevice
from attnfuzz.actors.targets.accelerator.devices import Device

MIB = 1 << 20
DIRTIED = (1 << 18, 1 << 24)
"""Numbers of float32: torch's allocator keeps what is up to 1 MiB apart from what is larger."""


class DeviceExecution(Execution):
    """One program on `device`, which torch calls `name`."""

    def __init__(self, settings: Data, phases: Phases, name: str, device: Device) -> None:
        super().__init__(settings, phases)
        importlib.import_module(device.module)
        self.device = torch.device(name)

    def go(self) -> None:
        self.phases.enter("build")
        self._limit_memory()
        super().go()

    def _limit_memory(self) -> None:
        """Starts the device, with no more of its memory than the job allows."""
        allowed = self.settings.get("device_memory_mb")
        limit = getattr(self._module, "set_per_process_memory_fraction", None)
        if allowed is None or limit is None:
            return
        total = self._module.get_device_properties(0).total_memory
        limit(min(1.0, allowed * MIB / total))

    @property
    def _module(self) -> Any:
        """torch's module for the device: `torch.cuda`, say."""
        return torch.get_device_module(self.device)

    def _given(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments on the device; CUDA graphs learn that their last outputs have been read."""
        torch.compiler.cudagraph_mark_step_begin()
        with self._exceptions("build", None):
            given = tuple(map(ToDevice(self.device), args))
            if self.settings.get("dirty_memory"):
                self._dirty_memory()
        return given

    def _dirty_memory(self) -> None:
        """Leaves NaN in the memory that is handed out next, so that uninitialised reads show."""
        for size in DIRTIED:
            torch.full((size,), torch.nan, device=self.device)

    def _waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def waited(*args: Any) -> Any:
            result = function(*args)
            self._module.synchronize()  # what goes wrong until here is not the backward pass's
            return result

        return waited

    def _finished(self, outputs: Outputs) -> Outputs:
        self._module.synchronize()
        return outputs

    def _numbers(self, outputs: Outputs) -> Outputs:
        return {
            name: value.detach().cpu() if isinstance(value, torch.Tensor) else value
            for name, value in outputs.items()
        }

    def _blames_layer(self, failure: Data) -> bool:
        """A device that has reported an illegal access computes nothing more in this process."""
        return failure["kind"] != "illegal_access" and super()._blames_layer(failure)

    def _rerun(self, backend: str) -> Data | None:
        try:
            return super()._rerun(backend)
        except Exception:  # the failure before it, which is kept, may have spoilt the device
            return None
