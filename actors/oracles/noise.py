"""How far rounding can carry a computation: Monte Carlo arithmetic on the float64 reference.

Every floating-point operand of every operation, of the backward pass too, is multiplied by
1 + eps * u, u uniform in [-1, 1] and drawn anew per element and operation, eps that of the
precision the program computes in (or of the operand's own dtype, where that is coarser; there the
result is shaken too, since a compiler that fuses keeps its digits). The spread
of the results is a first-order picture of what rounding in any order of operations does: it sees
cancellation, which the luck of one low-precision run can hide. The method is Parker's (Monte Carlo
Arithmetic, 1997).

Fused kernels keep of a softmax its log-sum-exp, rounded, and recompute exp(score - lse) from it
in the backward pass: their probabilities are off by a factor of exp(eps * |lse|). So a softmax's
result is also shaken by that, row by row; |lse| is taken to be that of the row's largest score.

In the backward pass they take the sum of p * dp over a row from the rounded result, as dout * out,
so that nothing cancels exactly where a row sees one key: the gradient of the scores is also shaken
by p * eps times the largest dp of the row, of a key that is not seen too, which says how large the
numbers were that a dp is the sum of.

Where n equal numbers are added one by one, each addition may round to the same side: the gradient
of a bias, summed over 150 positions in float32, was off by 18 eps, where noise of the summands
alone allowed 15. So a sum is shaken by eps * sqrt(n) too. Kernels add in float32 at least.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# These move, select or convert values; none of them rounds, so their operands are left alone.
_EXACT = """
    alias arange as_strided cat clone constant_pad_nd copy copy_ contiguous detach empty empty_like
    empty_strided expand eye fill fill_ flatten flip full full_like gather index index_select
    is_same_size lift_fresh masked_fill matrix_H mH mT movedim narrow new_empty new_full new_ones
    new_zeros ones ones_like permute repeat repeat_interleave reshape resolve_conj resolve_neg roll
    scalar_tensor select slice split split_with_sizes squeeze stack swapaxes t to _to_copy transpose
    unbind unfold unsafe_split unsqueeze _unsafe_view view view_as where zero_ zeros zeros_like
    chunk eq ne lt le gt ge isnan isinf isfinite any all tril triu _has_same_storage_numel
    _reshape_alias _unsafe_index select_backward slice_backward expand_as set_ sym_size
"""
EXACT = frozenset(_EXACT.split())

_GROWING = "mm bmm matmul addmm baddbmm mul div pow square sum exp"
GROWING = frozenset(_GROWING.split())

SOFTMAX = frozenset({"softmax", "_softmax"})
FILL = 1e30
"""Scores beyond are the fill of a mask, such as the least finite number."""


class Noise(TorchDispatchMode):
    """While active, operations get noisy operands. `largest` is the greatest finite magnitude that
    an operation gave which can make values grow."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        finfo = torch.finfo(dtype)
        self._eps, self._underflow = finfo.eps, finfo.eps * finfo.smallest_normal
        self._random = torch.Generator().manual_seed(seed)
        self.largest = 0.0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = function._schema.name.rpartition(":")[2]
        if name in EXACT or name.endswith("_"):
            return function(*args, **(kwargs or {}))
        result = function(*(self._shaken(value) for value in args), **(kwargs or {}))
        if self._is_coarser(result):  # it was rounded, which the compiled one need not do
            result = self._shaken(result)
        if name in SOFTMAX:
            result = result * self._lse_rounding(args[0], args[1])
        if name == "_softmax_backward_data":
            result = result + args[1] * self._row_sum_rounding(args[0], args[2])
        if name == "sum" and _is_floating(result) and result.numel():
            count = args[0].numel() // result.numel()
            result = result * self._summing(result.shape, count, result.dtype)
        if name in GROWING and _is_floating(result):
            self._note(result)
        return result

    def _lse_rounding(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """A factor per row; 1 where the row is empty or has no finite, sensible largest score."""
        if scores.size(dim) == 0:
            return torch.ones((), dtype=scores.dtype)
        largest = scores.detach().double().amax(dim, keepdim=True).abs()
        largest = torch.where(largest < FILL, largest, 0.0)
        factor = 1 + self._uniform(largest.shape) * self._eps * largest
        return factor.to(scores.dtype)

    def _row_sum_rounding(self, gradient: torch.Tensor, dim: int) -> torch.Tensor:
        """What the sum over a row of probabilities times their `gradient` is off by."""
        if gradient.size(dim) == 0:
            return torch.zeros((), dtype=gradient.dtype)
        largest = gradient.detach().double().abs().nan_to_num(nan=0.0, posinf=0.0)
        largest = largest.amax(dim, keepdim=True)
        return (self._uniform(largest.shape) * self._eps * largest).to(gradient.dtype)

    def _summing(self, shape: torch.Size, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A factor per sum of `count` numbers."""
        eps = min(self._eps, torch.finfo(torch.float32).eps)
        return (1 + self._uniform(shape) * eps * count**0.5).to(dtype)

    def _note(self, result: torch.Tensor) -> None:
        finite = result.detach().abs().double()
        finite = finite[finite < 1e300]
        if finite.numel():
            self.largest = max(self.largest, float(finite.max()))

    def _is_coarser(self, value: Any) -> bool:
        """Whether it has fewer digits than the program computes with."""
        return _is_floating(value) and torch.finfo(value.dtype).eps > self._eps

    def _shaken(self, value: Any) -> Any:
        if not _is_floating(value):
            return value
        own = torch.finfo(value.dtype)
        exact = value.double()
        relative = self._uniform(value.shape).mul_(max(self._eps, own.eps)).add_(1)
        absolute = self._uniform(value.shape).mul_(self._underflow)
        shaken = exact * relative + absolute
        # A row of fills is uniform, and stays so however it is rounded.
        kept = exact.isfinite() & (exact > -FILL)
        shaken = torch.where(kept, shaken.clamp(own.min, own.max), exact)
        return shaken.to(value.dtype)

    def _uniform(self, shape: torch.Size) -> torch.Tensor:
        return torch.rand(shape, generator=self._random, dtype=torch.float64).mul_(2).sub_(1)


def _is_floating(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
