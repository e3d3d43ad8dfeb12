"""A program's way through the child of a virtual NPU: all of torch_npu but its kernels."""

from __future__ import annotations

from attnfuzz.actors.child.outcomes import Data
from attnfuzz.actors.targets.virtual_card.execution import VirtualExecution


class NpuExecution(VirtualExecution):
    """One program on an Ascend NPU that is not there."""

    device = "npu"
    why = "virtual: tensors are fake, and no kernel is compiled or run"

    @property
    def kernels(self) -> list[Data]:
        return []
