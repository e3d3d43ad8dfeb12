"""Targets: what a program can be compiled for and run on, by name.

A target that is there runs programs; a virtual one compiles them for a card that need not be there
and runs nothing. `actors.targets` says which of them this machine can serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actors.virtual.cards import CARDS, INTERPRETED, Card
from generators.program import Program
from generators.swarm import MAX_COST, PROFILES, Place, by_weight

COMPILED_FOR_CARDS = ("sdpa", "flex", "handwritten", "function")
"""Kinds of kernel that Inductor compiles for a virtual card; the rest are libraries."""

INTERPRETED_KERNELS = ("flex", "handwritten")
"""Those that become kernels of Triton's, which can be interpreted."""

INTERPRETED_COST = 3_000_000
"""Multiply-adds of one attention call that is interpreted, which takes seconds."""

PROMISES = {"ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS"}
"""Options of flex_attention's kernels by which a program vouches for its mask: where that does not
hold, the numbers are the program's own fault."""

INTERPRETED_PATIENCE = 6.0


@dataclass(frozen=True)
class Target:
    """`device` is where a program's tensors lie, as torch names it; `card` is what a virtual target
    stands for."""

    name: str
    device: str
    card: Card | None = None
    interpreted: bool = False

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kinds of kernel that a virtual target takes."""
        return INTERPRETED_KERNELS if self.interpreted else COMPILED_FOR_CARDS

    @property
    def place(self) -> Place:
        """What programs are drawn for it."""
        cost = INTERPRETED_COST if self.interpreted else MAX_COST
        return Place(max_cost=cost, gpu=self.device == "cuda")

    @property
    def patience(self) -> float:
        """How many times as long as on a CPU everything may take."""
        return INTERPRETED_PATIENCE if self.interpreted else 1.0

    @property
    def is_virtual(self) -> bool:
        return self.card is not None

    def unfit(self, program: Program) -> str | None:
        """Why `program` cannot be run on this target, as a sentence that begins with a key of the
        program; None for one that can."""
        if not self.is_virtual:
            return None
        if program.kernel.kind not in self.kernels:
            known = ", ".join(self.kernels)
            return f"kernel.kind: {self.name} takes one of {known}, got {program.kernel.kind}"
        if program.mesh is not None:
            return f"mesh: expected none, as {self.name} is one card"
        promises = sorted(PROMISES & getattr(program.kernel, "kernel_options", {}).keys())
        if self.interpreted and promises:
            return f"kernel.kernel_options.{promises[0]}: a promise that its mask need not keep"
        if self.interpreted and (program.compile is None or program.compile.backend != "inductor"):
            return f"compile.backend: {self.name} runs what inductor generates, nothing else"
        return None

    def profiles(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Those of a campaign's profiles, with their weights, whose programs this target takes."""
        if not self.is_virtual:
            return dict(weights)
        fit = set(self.kernels)
        return {
            name: weight
            for name, weight in weights.items()
            if name != "ranks" and fit.issuperset(kernel for kernel, _ in PROFILES[name].kernels)
        }

    def environment(self, other: Mapping[str, str]) -> dict[str, str]:
        """`other`, which may be of another target of the same toolchain, with this one instead."""
        toolchain = {name: text for name, text in other.items() if name != "card"}
        if self.card is None:
            return toolchain | {"target": self.name}
        ran = "interpreted on the CPU" if self.interpreted else "nothing was run"
        return toolchain | {"target": self.name, "card": f"{self.card.name} (virtual: {ran})"}


TARGETS = {
    "cpu": Target("cpu", "cpu"),
    **{name: Target(name, "cuda", card) for name, card in CARDS.items()},
    **{name: Target(name, "cuda", card, interpreted=True) for name, card in INTERPRETED.items()},
}
"""Those that programs can run on, by name."""


def target_for(seed: int, index: int, weights: Mapping[str, float]) -> str:
    """The target of shard `index` of a campaign, with the given relative weights."""
    return by_weight(seed, "target", index, weights)
