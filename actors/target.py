"""Targets: what a program can be compiled for and run on, by name.

A target that is there runs programs; a virtual one compiles them for a card that need not be there
and runs nothing. `actors.targets` says which of them this machine can serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actors.virtual.cards import CARDS, Card
from generators.program import Program
from generators.swarm import PROFILES, by_weight

COMPILED_FOR_CARDS = ("sdpa", "flex", "handwritten", "function")
"""Kinds of kernel that Inductor compiles for a virtual card; the rest are libraries."""


@dataclass(frozen=True)
class Target:
    """`device` is where a program's tensors lie, as torch names it; `card` is what a virtual target
    stands for."""

    name: str
    device: str
    card: Card | None = None

    @property
    def is_virtual(self) -> bool:
        return self.card is not None

    def unfit(self, program: Program) -> str | None:
        """Why `program` cannot be run on this target, as a sentence that begins with a key of the
        program; None for one that can."""
        if not self.is_virtual:
            return None
        if program.kernel.kind not in COMPILED_FOR_CARDS:
            known = ", ".join(COMPILED_FOR_CARDS)
            return f"kernel.kind: {self.name} takes one of {known}, got {program.kernel.kind}"
        if program.mesh is not None:
            return f"mesh: expected none, as {self.name} is one card"
        return None

    def profiles(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Those of a campaign's profiles, with their weights, whose programs this target takes."""
        if not self.is_virtual:
            return dict(weights)
        fit = set(COMPILED_FOR_CARDS)
        return {
            name: weight
            for name, weight in weights.items()
            if name != "ranks" and fit.issuperset(kernel for kernel, _ in PROFILES[name].kernels)
        }

    def facts(self) -> dict[str, str]:
        """What an outcome's environment says of the target."""
        card = {"card": f"{self.card.name} (virtual: nothing was run)"} if self.card else {}
        return {"target": self.name, **card}


TARGETS = {
    "cpu": Target("cpu", "cpu"),
    **{name: Target(name, "cuda", card) for name, card in CARDS.items()},
}
"""Those that programs can run on, by name."""


def target_for(seed: int, index: int, weights: Mapping[str, float]) -> str:
    """The target of shard `index` of a campaign, with the given relative weights."""
    return by_weight(seed, "target", index, weights)
