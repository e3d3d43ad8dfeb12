"""The metamorphic oracle: what must not change a result. Costs one eager run.

Permuting the batch permutes the result. The relation holds where nothing depends on the batch
index, which the job says (`oracles.batch_permutable`).
"""

from __future__ import annotations

from typing import Any

import torch


def permuted_batch(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments with q, k and v's batches in reverse order; None if there is only one."""
    leading = args[:3]
    if not all(isinstance(a, torch.Tensor) and a.dim() == 4 for a in leading):
        return None
    if leading[0].size(0) < 2:
        return None
    flipped = (a.detach().flip(0).requires_grad_(a.requires_grad) for a in leading)
    return (*flipped, *args[3:])
