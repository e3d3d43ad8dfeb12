"""The gradient oracle: a leaf's gradient has the leaf's shape, dtype and device, and its strides
where torch says so.

The engine makes each gradient agree with its leaf (`validate_grad` in torch/csrc/autograd), so what
differs has gone around it. Strides are promised of what `backward` leaves in `.grad` alone: those
of the leaf where that is dense, else those of a contiguous tensor (torch/csrc/autograd/functions/
accumulate_grad.h, "Gradient Layout Contract"). `oracles.accumulates` says that it is so here.
Costs nothing.
"""

from __future__ import annotations

import torch

from attnfuzz.actors.child import tensors
from attnfuzz.actors.child.outcomes import Data, diff
from attnfuzz.actors.oracles.metadata import significant_strides
from attnfuzz.actors.oracles.oracle import Oracle, Run, fail_on


class Gradients(Oracle):
    """Compares the gradients of each run with their leaves."""

    def check(self, run: Run) -> None:
        settings = self.execution.settings.get("oracles") or {}
        accumulates = bool(settings.get("accumulates"))
        leaves = {
            name: value
            for name, value in zip(run.names, run.args, strict=True)
            if tensors.is_floating(value)
        }
        found = [
            different
            for name, leaf in leaves.items()
            for prefix in ("d", "dd")
            if (gradient := run.described.get(prefix + name)) and prefix + name not in leaves
            for different in against_leaf(prefix + name, gradient, leaf, accumulates, run.call)
        ]
        fail_on("metadata_mismatch", "gradients", found, run.layer)


def against_leaf(
    name: str, gradient: Data, leaf: torch.Tensor, accumulates: bool, call: int
) -> list[Data]:
    """Properties of the gradient `name` that are not its leaf's."""
    meant: Data = {
        "shape": tuple(leaf.shape),
        "dtype": leaf.dtype,
        "device": str(leaf.device),
    }
    if accumulates and "stride" in gradient:
        meant["stride"] = contract(leaf)
    return [
        diff(name, what, expected, gradient[what], call=call)
        for what, expected in meant.items()
        if gradient[what] != expected
    ]


def contract(leaf: torch.Tensor) -> tuple[int | None, ...]:
    """The strides that the `.grad` of `leaf` has; None where they say nothing."""
    dense = torch.ops.aten.is_non_overlapping_and_dense(leaf)
    return significant_strides(leaf if dense else torch.empty(leaf.shape, device="meta"))
