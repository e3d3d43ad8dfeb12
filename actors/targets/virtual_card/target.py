"""Virtual cards: GPUs that need not be there, for which programs are compiled and not run."""

from __future__ import annotations

from attnfuzz.actors.targets.target import Probe, StandIn, Target, missing_compiler
from attnfuzz.actors.targets.virtual_card.cards import CARDS
from attnfuzz.generators.strategies.swarm import Place

COMPILED_KERNELS = ("sdpa", "flex", "handwritten", "graph", "function", "varlen", "torchtune")
"""Kinds of kernel that Inductor compiles for a virtual card; the rest are libraries, or systems
that would make their masks on the card."""

MAX_COST = 400_000_000
"""Multiply-adds of one attention call: nothing is computed, but what a program was minimized to is
on the CPU."""


class VirtualCardTarget(Target):
    """A card that programs are compiled for, to cubins or code objects, and that runs nothing."""

    def kernels(self, preload: bool = False) -> tuple[str, ...]:
        return COMPILED_KERNELS

    def _missing(self, probe: Probe) -> str | None:
        return missing_toolchain(probe)

    def _found(self, probe: Probe) -> str:
        assert self.stand_in is not None
        card, torch = self.stand_in.device, probe["torch"]
        return f"virtual: compiles for {card} and runs no kernel; torch {torch}"


def missing_toolchain(probe: Probe) -> str | None:
    """What kernels cannot be compiled without for a card that need not be there: the stand-in takes
    the place of torch's CUDA, but not of ROCm's, nor of one that has a card."""
    if probe["cuda_build"] and probe["cuda"] is not None:
        return (
            f"torch {probe['torch']} finds {probe['cuda']}, and a card that is there is not faked"
        )
    if probe["cuda_build"] and probe["maker"] != "CUDA":
        return (
            f"torch {probe['torch']} is built with {probe['maker']}; this needs a CPU or CUDA build"
        )
    if not probe.get("triton", False):
        return "triton is not installed in the toolchain"
    return missing_compiler("builds the virtual device")


TARGETS = tuple(
    VirtualCardTarget(
        name,
        "cuda",
        place=Place(
            "cuda", MAX_COST, gpu=True, ranks="one", as_trained=True, links=False, redraws=False
        ),
        ranks_seen="one",
        stand_in=StandIn(
            device=card.name,
            treatment=f"compiled for {card.name}",
            kernels="no kernel run",
            ran="nothing was run",
            found=f"found by attnfuzz's {name}",
        ),
    )
    for name, card in CARDS.items()
)
