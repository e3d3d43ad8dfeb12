"""Targets: what a program can be compiled for and run on, by name.

A target that is there, the CPU or a device, runs programs; a virtual one compiles them for a card
that need not be there and runs nothing. `actors.targets.availability` says which of them this
machine can serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from attnfuzz.actors.sandbox.job import Deadlines, Limits
from attnfuzz.actors.targets.devices import DEVICES
from attnfuzz.actors.targets.virtual.cards import CARDS, INTERPRETED, NPUS, Card, Npu
from attnfuzz.generators.kernels.registry import REGISTRY
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.swarm import BACKENDS, MAX_COST, PROFILES, Place, by_weight

COMPILED_FOR_CARDS = ("sdpa", "flex", "handwritten", "function")
"""Kinds of kernel that Inductor compiles for a virtual card; the rest are libraries."""

FOR_NPUS = ("npu_fusion_attention", "sdpa", "handwritten", "function")
"""Those that torch_npu takes."""

BEFORE_CODE = ("none", "eager", "aot_eager")
"""Back-ends that need no compiler of Ascend's."""

GPUS = ("cuda", "xpu")
"""What torch calls them."""

OF_NPUS = ("npu_fusion_attention",)
"""Kernels, and profiles of that name, that need their device; torch_npu is not imported without
the libraries of one."""

INTERPRETED_KERNELS = ("flex", "handwritten")
"""Those that become kernels of Triton's, which can be interpreted."""

INTERPRETED_COST = 3_000_000
"""Multiply-adds of one attention call that is interpreted, which takes seconds."""

VIRTUAL_COST = 400_000_000
"""The same where nothing is computed, but what a program was minimized to is on the CPU."""

PROMISES = {"ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS"}
"""Options of flex_attention's kernels by which a program vouches for its mask: where that does not
hold, the numbers are the program's own fault."""

INTERPRETED_PATIENCE = 6.0
"""How many times as long as on a CPU what runs kernels may take; compiling them takes no longer."""
DEVICE_PATIENCE = 2.0
"""The same of everything: CUDA is started, and all of Inductor and Triton is cold, in each
program's process."""

DEVICE_MEMORY_MB = 16384
"""Of the CPU's, for a process that uses a device: CUDA maps memory of its own."""


@dataclass(frozen=True)
class Target:
    """`device` is where a program's tensors lie, as torch names it; `card` is what a virtual target
    stands for."""

    name: str
    device: str
    card: Card | Npu | None = None
    interpreted: bool = False

    def kernels(self, preload: bool = False) -> tuple[str, ...]:
        """The kinds of kernel that it takes; `preload` as for `unfit`."""
        if self.device == "npu":
            return FOR_NPUS
        if self.interpreted:
            return INTERPRETED_KERNELS
        if self.is_virtual:
            return COMPILED_FOR_CARDS
        return tuple(kind for kind in REGISTRY if preload or kind not in OF_NPUS)

    @property
    def place(self) -> Place:
        """What programs are drawn for it."""
        cost = VIRTUAL_COST if self.is_virtual else MAX_COST
        fake_npu = isinstance(self.card, Npu)
        return Place(
            max_cost=INTERPRETED_COST if self.interpreted else cost,
            gpu=self.device in GPUS,
            backends=BEFORE_CODE if fake_npu else BACKENDS,
            one_rank=fake_npu,
            as_trained=self.device in GPUS and not self.interpreted,
            links=not isinstance(self.card, Card),
        )

    def deadlines(self, on_cpu: Deadlines) -> Deadlines:
        """What a program may take here, by what it may on a CPU."""
        if self.interpreted:
            runs = {name: getattr(on_cpu, name) for name in ("forward", "backward")}
            slowly = {name: seconds * INTERPRETED_PATIENCE for name, seconds in runs.items()}
            more = sum(slowly.values()) - sum(runs.values())
            return replace(on_cpu, **slowly, total=on_cpu.total + more)
        return on_cpu.times(DEVICE_PATIENCE) if self.is_device else on_cpu

    @property
    def limits(self) -> Limits:
        """What a program may use there, unless a configuration says so."""
        return Limits(memory_mb=DEVICE_MEMORY_MB) if self.is_device else Limits()

    @property
    def is_virtual(self) -> bool:
        return self.card is not None

    @property
    def is_device(self) -> bool:
        """Whether it is an accelerator that is there."""
        return self.name in DEVICES

    @property
    def has_ranks(self) -> bool:
        """Whether programs of several ranks run there: a device is one."""
        return self.name == "cpu" or self.place.one_rank

    def unfit(self, program: Program, preload: bool = False) -> str | None:
        """Why `program` cannot be run on this target, as a sentence that begins with a key of the
        program; None for one that can. `preload`: files are loaded before it, which may stand in
        for its kernel's package."""
        kind, known = program.kernel.kind, self.kernels(preload)
        if kind not in known:
            if not self.is_virtual and kind in OF_NPUS:
                return f"kernel.kind: {kind} runs on {self.name} over a stand-in only"
            return f"kernel.kind: {self.name} takes one of {', '.join(known)}, got {kind}"
        if program.mesh is not None and not self.has_ranks:
            one = "card" if self.is_virtual else "device"
            return f"mesh: expected none, as {self.name} is one {one}"
        if program.compile is not None and program.compile.backend not in self.place.backends:
            has = ", ".join(self.place.backends[1:])
            return f"compile.backend: {self.name} takes one of {has}"
        if not self.place.links and program.compile and program.compile.options.get("cpp_wrapper"):
            return f"compile.options.cpp_wrapper: {self.name} has no libraries of CUDA to link with"
        promises = sorted(PROMISES & getattr(program.kernel, "kernel_options", {}).keys())
        if promises and (self.interpreted or self.is_device):
            return f"kernel.kernel_options.{promises[0]}: a promise that its mask need not keep"
        if self.interpreted and (program.compile is None or program.compile.backend != "inductor"):
            return f"compile.backend: {self.name} runs what inductor generates, nothing else"
        return None

    def profiles(self, weights: Mapping[str, float], preload: bool = False) -> dict[str, float]:
        """Those of a campaign's profiles, with their weights, whose programs this target takes;
        `preload` as for `unfit`."""
        fit = set(self.kernels(preload))
        return {
            name: weight
            for name, weight in weights.items()
            if (name != "ranks" or self.has_ranks)
            and fit.issuperset(kernel for kernel, _ in PROFILES[name].kernels)
            and any(backend in self.place.backends for backend, _ in PROFILES[name].backends)
        }

    def environment(self, other: Mapping[str, str]) -> dict[str, str]:
        """`other`, which may be of another target of the same toolchain, with this one instead."""
        if self.is_device and other.get("target", self.name) == self.name:
            return {**other, "target": self.name}
        toolchain = {name: text for name, text in other.items() if name != "card"}
        if self.card is None:
            return toolchain | {"target": self.name}
        ran = "interpreted on the CPU" if self.interpreted else "nothing was run"
        return toolchain | {"target": self.name, "card": f"{self.card.name} (virtual: {ran})"}

    @property
    def of_script(self) -> str:
        """What the script of a failure has to say of where it is to be run; empty for what ran."""
        if self.card is None:
            return ""
        how = "interpreted on a CPU" if self.interpreted else f"found by attnfuzz's {self.name}"
        return f"For {self.card.name}: {how}, not run on such a device yet."

    @property
    def made_of_it(self) -> str:
        """What a virtual target makes of a program, as a participle."""
        assert self.card is not None
        how = "on fake tensors of" if isinstance(self.card, Npu) else "compiled for"
        return f"{how} {self.card.name}"


TARGETS = {
    "cpu": Target("cpu", "cpu"),
    **{name: Target(name, name) for name in DEVICES},
    **{name: Target(name, "cuda", card) for name, card in CARDS.items()},
    **{name: Target(name, "cuda", card, interpreted=True) for name, card in INTERPRETED.items()},
    **{name: Target(name, "npu", npu) for name, npu in NPUS.items()},
}
"""Those that programs can run on, by name."""


def target_for(seed: int, index: int, weights: Mapping[str, float]) -> str:
    """The target of shard `index` of a campaign, with the given relative weights."""
    return by_weight(seed, "target", index, weights)
