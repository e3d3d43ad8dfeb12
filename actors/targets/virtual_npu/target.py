"""Virtual NPUs: the real torch_npu on fake tensors, over a stand-in for CANN."""

from __future__ import annotations

import os
import shutil

from attnfuzz.actors.targets.accelerator.devices import NPU_KERNELS
from attnfuzz.actors.targets.target import Probe, StandIn, Target
from attnfuzz.actors.targets.virtual_card.target import MAX_COST
from attnfuzz.actors.targets.virtual_npu import cann
from attnfuzz.actors.targets.virtual_npu.npus import NPUS
from attnfuzz.generators.strategies.swarm import Place

BACKENDS = ("none", "eager", "aot_eager")
"""Back-ends of torch.compile that need no compiler of Ascend's."""


class VirtualNpuTarget(Target):
    """An Ascend NPU for which nothing is compiled to machine code, and nothing is run."""

    def kernels(self, preload: bool = False) -> tuple[str, ...]:
        return NPU_KERNELS

    def _missing(self, probe: Probe) -> str | None:
        if probe["cuda_build"]:
            return f"torch {probe['torch']} is built with CUDA; this needs a CPU build"
        if not probe["torch_npu"]:
            return "torch_npu is not installed in the toolchain"
        if cann.DRIVER.exists():
            return f"{cann.DRIVER} is there: this machine has an NPU, which is not to be faked"
        for tool in (os.environ.get("CXX", "g++"), "nm"):
            if shutil.which(tool) is None:
                return f"there is no {tool}, with which the stand-in for CANN is made"
        return None

    def _found(self, probe: Probe) -> str:
        assert self.stand_in is not None
        npu, torch = self.stand_in.device, probe["torch"]
        return f"virtual: torch_npu for {npu}, on fake tensors; torch {torch}"


TARGETS = tuple(
    VirtualNpuTarget(
        name,
        "npu",
        place=Place("npu", MAX_COST, backends=BACKENDS, ranks="one", redraws=False),
        ranks_seen="one",
        stand_in=StandIn(
            device=npu.name,
            treatment=f"on fake tensors of {npu.name}",
            kernels="no kernel run",
            ran="nothing was run",
            found=f"found by attnfuzz's {name}",
        ),
    )
    for name, npu in NPUS.items()
)
