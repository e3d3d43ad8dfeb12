"""The metamorphic oracle: what must not change a result. Costs one eager run.

Permuting the batch permutes the result. The relation holds where nothing depends on the batch
index, which the job says (`oracles.batch_permutable`).
"""

from __future__ import annotations

from typing import Any

import torch

from attnfuzz.actors.oracles.numbers import check_numbers
from attnfuzz.actors.oracles.oracle import Oracle


class BatchPermutation(Oracle):
    """Runs the first eager call on permuted batches, and judges the numbers permuted back."""

    needs_reference = True

    def after_eager(self) -> None:
        execution = self.execution
        if not (execution.settings.get("oracles") or {}).get("batch_permutable"):
            execution.skipped["batch_permutation"] = (
                "the job does not say that batches are independent"
            )
            return
        permuted = permuted_batch(execution.program.inputs(0))
        if permuted is None:
            execution.skipped["batch_permutation"] = "there is one batch"
            return
        outputs = execution.outputs(execution.program.attention, permuted, "eager")
        eager = execution.eager[0].outputs
        restored = eager | {"out": outputs["out"].flip(0)}
        check_numbers(execution, restored, 0, "eager", eager, "batch permutation")


def permuted_batch(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments with q, k and v's batches in reverse order; None if there is only one."""
    leading = args[:3]
    if not all(isinstance(a, torch.Tensor) and a.dim() == 4 for a in leading):
        return None
    if leading[0].size(0) < 2:
        return None
    flipped = (a.detach().flip(0).requires_grad_(a.requires_grad) for a in leading)
    return (*flipped, *args[3:])
