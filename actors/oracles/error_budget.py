"""The numeric error budget: how far a result may be from the float64 reference.

    budget = 10 * max(error of the yardstick, error under noise) + 4 * eps * max |expected|

The yardstick is the reference run in the precision of the program, and for a compiled result also
the eager one, which was judged before: it may be ten times as wrong. The noise is Monte Carlo
arithmetic on the float64 reference (see `oracles.noise`). It costs more runs, so it is drawn only
once something exceeds the budget without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

FACTOR = 10.0
FLOOR = 4.0


class ErrorBudget:
    """The budget of one output, from its judged elements, flat and in float64: those `expected`,
    and of each of the `yardsticks`. `eps` is the relative precision, `smallest` the rounding error
    of the smallest numbers."""

    def __init__(
        self,
        expected: torch.Tensor,
        yardsticks: Sequence[torch.Tensor],
        eps: float,
        smallest: float,
    ) -> None:
        self._floor = FLOOR * (eps * float(expected.abs().max()) + smallest)
        self._spread = max([float((one - expected).abs().max()) for one in yardsticks] + [0.0])

    def without_noise(self) -> float:
        """The budget by the yardsticks alone."""
        return FACTOR * self._spread + self._floor

    def with_noise(self, deviation: torch.Tensor) -> float:
        """The budget where noise makes the judged elements deviate that much."""
        return FACTOR * max(self._spread, float(deviation.max())) + self._floor
