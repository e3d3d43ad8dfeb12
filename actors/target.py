"""Targets: what a program can be compiled for and run on, by name.

A target that is there runs programs; a virtual one compiles them for a card that need not be there
and runs nothing. `actors.targets` says which of them this machine can serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actors.virtual.cards import CARDS, INTERPRETED, NPUS, Card, Npu
from generators.program import Program
from generators.swarm import BACKENDS, MAX_COST, PROFILES, Place, by_weight

COMPILED_FOR_CARDS = ("sdpa", "flex", "handwritten", "function")
"""Kinds of kernel that Inductor compiles for a virtual card; the rest are libraries."""

FOR_NPUS = ("npu_fusion_attention", "sdpa", "handwritten", "function")
"""Those that torch_npu takes."""

BEFORE_CODE = ("none", "eager", "aot_eager")
"""Back-ends that need no compiler of Ascend's."""

NOT_ON_CPU = ("npu_fusion_attention",)
"""Kernels, and profiles of that name, that need their device; torch_npu is not imported without
the libraries of one."""

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
    card: Card | Npu | None = None
    interpreted: bool = False

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kinds of kernel that a virtual target takes."""
        if isinstance(self.card, Npu):
            return FOR_NPUS
        return INTERPRETED_KERNELS if self.interpreted else COMPILED_FOR_CARDS

    @property
    def place(self) -> Place:
        """What programs are drawn for it."""
        cost = INTERPRETED_COST if self.interpreted else MAX_COST
        backends = BEFORE_CODE if isinstance(self.card, Npu) else BACKENDS
        return Place(
            max_cost=cost,
            gpu=self.device == "cuda",
            backends=backends,
            one_rank=self.device == "npu",
            as_trained=isinstance(self.card, Card) and not self.interpreted,
        )

    @property
    def patience(self) -> float:
        """How many times as long as on a CPU everything may take."""
        return INTERPRETED_PATIENCE if self.interpreted else 1.0

    @property
    def is_virtual(self) -> bool:
        return self.card is not None

    def unfit(self, program: Program, preload: bool = False) -> str | None:
        """Why `program` cannot be run on this target, as a sentence that begins with a key of the
        program; None for one that can. `preload`: files are loaded before it, which may stand in
        for its kernel's package."""
        if not self.is_virtual:
            if program.kernel.kind in NOT_ON_CPU and not preload:
                return (
                    f"kernel.kind: {program.kernel.kind} runs on {self.name} over a stand-in only"
                )
            return None
        if program.kernel.kind not in self.kernels:
            known = ", ".join(self.kernels)
            return f"kernel.kind: {self.name} takes one of {known}, got {program.kernel.kind}"
        if program.mesh is not None and self.device == "cuda":
            return f"mesh: expected none, as {self.name} is one card"
        if program.compile is not None and program.compile.backend not in self.place.backends:
            known = ", ".join(self.place.backends[1:])
            return f"compile.backend: {self.name} takes one of {known}"
        promises = sorted(PROMISES & getattr(program.kernel, "kernel_options", {}).keys())
        if self.interpreted and promises:
            return f"kernel.kernel_options.{promises[0]}: a promise that its mask need not keep"
        if self.interpreted and (program.compile is None or program.compile.backend != "inductor"):
            return f"compile.backend: {self.name} runs what inductor generates, nothing else"
        return None

    def profiles(self, weights: Mapping[str, float], preload: bool = False) -> dict[str, float]:
        """Those of a campaign's profiles, with their weights, whose programs this target takes;
        `preload` as for `unfit`."""
        if not self.is_virtual:
            without = () if preload else NOT_ON_CPU
            return {name: weight for name, weight in weights.items() if name not in without}
        fit = set(self.kernels)
        return {
            name: weight
            for name, weight in weights.items()
            if (name != "ranks" or self.place.one_rank)
            and fit.issuperset(kernel for kernel, _ in PROFILES[name].kernels)
            and any(backend in self.place.backends for backend, _ in PROFILES[name].backends)
        }

    def environment(self, other: Mapping[str, str]) -> dict[str, str]:
        """`other`, which may be of another target of the same toolchain, with this one instead."""
        toolchain = {name: text for name, text in other.items() if name != "card"}
        if self.card is None:
            return toolchain | {"target": self.name}
        ran = "interpreted on the CPU" if self.interpreted else "nothing was run"
        return toolchain | {"target": self.name, "card": f"{self.card.name} (virtual: {ran})"}

    @property
    def made_of_it(self) -> str:
        """What a virtual target makes of a program, as a participle."""
        assert self.card is not None
        how = "on fake tensors of" if isinstance(self.card, Npu) else "compiled for"
        return f"{how} {self.card.name}"


TARGETS = {
    "cpu": Target("cpu", "cpu"),
    **{name: Target(name, "cuda", card) for name, card in CARDS.items()},
    **{name: Target(name, "cuda", card, interpreted=True) for name, card in INTERPRETED.items()},
    **{name: Target(name, "npu", npu) for name, npu in NPUS.items()},
}
"""Those that programs can run on, by name."""


def target_for(seed: int, index: int, weights: Mapping[str, float]) -> str:
    """The target of shard `index` of a campaign, with the given relative weights."""
    return by_weight(seed, "target", index, weights)
