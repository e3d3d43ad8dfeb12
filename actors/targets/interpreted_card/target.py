"""Interpreted cards: what Inductor generates for a GPU that need not be there is run on the CPU, by
Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.targets.interpreted_card.cards import INTERPRETED
from attnfuzz.actors.targets.target import Probe, StandIn, Target
from attnfuzz.actors.targets.virtual_card.target import missing_toolchain
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.swarm import Place

TRITON_KERNELS = ("flex", "handwritten", "graph")
"""Kinds of kernel that become Triton's, which can be interpreted."""

MAX_COST = 3_000_000
"""Multiply-adds of one attention call, which takes seconds."""

SLOWNESS = 6.0
"""How many times as long as on a CPU what runs kernels may take; compiling them takes no longer."""


class InterpretedCardTarget(Target):
    """A card whose generated kernels are interpreted, and their numbers judged."""

    def kernels(self, preload: bool = False) -> tuple[str, ...]:
        return TRITON_KERNELS

    def unfit(self, program: Program, preload: bool = False) -> str | None:
        unfit = super().unfit(program, preload)
        if unfit is not None:
            return unfit
        if program.compile is None:
            return f"compile.backend: {self.name} runs what inductor generates, nothing else"
        return None

    def deadlines(self, on_cpu: Deadlines) -> Deadlines:
        runs = {name: getattr(on_cpu, name) for name in ("forward", "backward")}
        slowly = {name: seconds * SLOWNESS for name, seconds in runs.items()}
        more = sum(slowly.values()) - sum(runs.values())
        return replace(on_cpu, **slowly, total=on_cpu.total + more)

    def cpu_source(self, program: Program) -> str:
        return source(program)

    def _missing(self, probe: Probe) -> str | None:
        return missing_toolchain(probe)

    def _found(self, probe: Probe) -> str:
        assert self.stand_in is not None
        card, torch = self.stand_in.device, probe["torch"]
        return f"virtual: compiles for {card} and interprets them; torch {torch}"


TARGETS = tuple(
    InterpretedCardTarget(
        name,
        "cuda",
        place=Place(
            max_cost=MAX_COST, gpu=True, backends=("inductor",), links=False, redraws=False
        ),
        ranks_seen="none",
        heeds_kernel_options=True,
        stand_in=StandIn(
            device=card.name,
            treatment=f"compiled for {card.name}",
            kernels="its kernels interpreted",
            ran="interpreted on the CPU",
            found="interpreted on a CPU",
        ),
    )
    for name, card in INTERPRETED.items()
)
