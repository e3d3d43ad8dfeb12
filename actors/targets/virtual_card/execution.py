"""A program's way through the child of a virtual target: it is compiled, and computes nothing.

The arguments are made on the CPU and become fake tensors of the card. `attention` and `compiled`
run on those, so that what is promised (shapes, dtypes, strides) can be compared, while the
compiler goes all the way to cubins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attnfuzz.actors.child.execute import Execution
from attnfuzz.actors.child.outcomes import Data
from attnfuzz.actors.child.phases import Phases
from attnfuzz.actors.child.program_module import Outputs
from attnfuzz.actors.child.to_device import ToCard
from attnfuzz.actors.oracles.hygiene import Hygiene
from attnfuzz.actors.oracles.metadata import LayoutAgainstEager
from attnfuzz.actors.targets.virtual_card import cuda

VALUES = ("numbers", "purity", "determinism", "batch_permutation")
"""The oracles that need them."""

NO_FUSED_SDPA = "virtual: the math back-end is chosen, never a fused one"
"""Noted for SDPA on AMD's cards, whose rules are not known here."""

NO_VALUES = {
    "pattern": r"^[\w.]*(DataDependentOutput|DynamicOutputShape|UnsupportedOperator)Exception: ",
    "why": "virtual: it takes values, or an operator that fake tensors do not have",
}
"""Raised by what runs on the fake tensors; what a compiler meets on its way is wrapped by it."""

LIFTED = {
    "pattern": r"AttributeError: 'Tensor' object has no attribute 'get_dtype'",
    "why": "virtual: a constant of the program is made on the CPU and moved, on a card it is not",
}
"""Raised by the lowering of a mod that has a constant (an index, say): torch makes those on the
CPU where CUDA is not to be had, and what is left of the move is not lowered. See
docs/VIRTUAL_TARGETS.md."""

REAL_TENSOR = {
    "pattern": r"^NotImplementedError: Could not run 'aten::\w+' with arguments from .* 'CUDA'",
    "why": "virtual: it makes a tensor on the card where the fake mode is not seen",
}
"""Raised at `torch.tensor(…, device="cuda")` where a checkpoint computes it anew in the backward
pass, as autograd's thread of a card does not know that constants are lifted, and in inference
mode."""


class VirtualExecution(Execution):
    """One program on a card that is not there, which computes no numbers."""

    oracles = (Hygiene, LayoutAgainstEager)
    device = "cuda"
    why = "virtual: kernels are compiled, not run"

    def __init__(self, settings: Data, phases: Phases) -> None:
        refusals = [*settings.get("refusals", ()), NO_VALUES, LIFTED, REAL_TENSOR]
        super().__init__(settings | {"refusals": refusals}, phases)
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)  # constants of graphs are real
        self.skipped = dict.fromkeys(VALUES, self.why)
        if torch.version.hip and (settings.get("oracles") or {}).get("sdpa"):
            self.skipped["fused_sdpa"] = NO_FUSED_SDPA

    @property
    def kernels(self) -> list[Data]:
        return cuda.loaded_kernels()

    def _given(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(ToCard(self.mode, self.device), args))

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], layer: str) -> Outputs:
        with self.mode:
            return super()._called(function, args, layer)
