"""The numeric error budget: how far a result may be from the float64 reference.

    budget = 10 * max(error of the yardstick, error under noise) + 4 * eps * max |expected|

The yardstick is the reference run in the precision of the program, and for a compiled result also
the eager one, which was judged before: it may be ten times as wrong. The noise is Monte Carlo
arithmetic on the float64 reference (see `oracles.noise`). It costs more runs, so it is drawn only
once something exceeds the budget without it.

Where values are small, rounding is too: under a causal mask the gradients of late rows are a
fraction of the first ones, and a budget for all of them would take a late row that is doubled for
rounding. So each block of `BLOCK` elements, in the order of their indices, has a budget of its own:

    budget of a block = max(10 * yardstick's, 4 * noise's) * its max |expected|
                        + 4 * eps * its max |expected|

and never more than that of the whole. The yardstick's and the noise's are the largest errors in a
block over its max |expected|, of the worst block: which one rounding hits worst (two scores that
are nearly equal in a saturated softmax) is chance. Noise there is some seven times the yardstick's
(bfloat16, causal, 1,024 positions, forward and backward), so four of it are no less. A block whose
expected values all cancel to 0, but for what float64 leaves, where yardstick or noise do not says
nothing of relative errors: all have the budget of the whole then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

FACTOR = 10.0
OF_NOISE = 4.0
FLOOR = 4.0
CANCELLED = 1e-14
"""What is smaller than the largest value by this is what rounding in float64 leaves of a 0."""
BLOCK = 256
"""Elements. Of fewer the worst relative error would be chance more than rounding."""


@dataclass(frozen=True)
class Budgets:
    """The budget of the `whole` output, and those of its `blocks`."""

    whole: float
    blocks: torch.Tensor

    def of_elements(self, count: int) -> torch.Tensor:
        """The budget of each of the `count` elements."""
        return self.blocks.repeat_interleave(BLOCK)[:count]


class ErrorBudget:
    """The budgets of one output, from its elements, flat and in float64: those `expected`, of each
    of the `yardsticks`, and which of them are `judged`. `eps` is the relative precision, `smallest`
    the rounding error of the smallest numbers."""

    def __init__(
        self,
        expected: torch.Tensor,
        yardsticks: Sequence[torch.Tensor],
        judged: torch.Tensor,
        eps: float,
        smallest: float,
    ) -> None:
        self._judged, self._eps, self._smallest = judged, eps, smallest
        self._largest = self._worst(expected.abs())
        self._spread = torch.zeros_like(self._largest)
        for one in yardsticks:
            self._spread = torch.maximum(self._spread, self._worst((one - expected).abs()))

    def without_noise(self) -> Budgets:
        """The budgets by the yardsticks alone."""
        return self._budgets(torch.zeros_like(self._spread))

    def with_noise(self, deviation: torch.Tensor) -> Budgets:
        """The budgets where noise makes the elements deviate that much."""
        return self._budgets(self._worst(deviation))

    def _worst(self, values: torch.Tensor) -> torch.Tensor:
        """The largest of the judged values of each block."""
        values = torch.where(self._judged, values, 0.0)
        padded = torch.nn.functional.pad(values, (0, -values.numel() % BLOCK))
        return padded.reshape(-1, BLOCK).amax(1)

    def _budgets(self, noise: torch.Tensor) -> Budgets:
        floor = FLOOR * (self._eps * self._largest + self._smallest)
        whole = FACTOR * float(torch.maximum(self._spread, noise).max()) + float(floor.max())
        cancelled = self._largest <= CANCELLED * self._largest.max()
        worst = torch.maximum(FACTOR * self._spread, OF_NOISE * noise)
        worst = worst / torch.where(cancelled, 0.0, self._largest)
        own = worst.nan_to_num(nan=0.0, posinf=torch.inf).max() * self._largest + floor
        own = own.nan_to_num(nan=torch.inf, posinf=torch.inf)  # inf * 0
        return Budgets(whole, own.clamp(max=whole))
