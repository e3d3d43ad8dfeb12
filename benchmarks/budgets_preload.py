"""The preload file of `budgets.py`: notes how near each result that is judged comes to its budgets.

It is copied into a folder. At each comparison a line of JSON is added to `budgets.jsonl` beside it:
{"output": "dq", "whole": 0.02, "block": 0.08, "small": 0.01}. `whole` and `block` are the largest
error over the budget of the whole and that of its block, with noise where the error is not far
below; `small` is the smallest block's budget over that of the whole.
"""

import json
from pathlib import Path
from typing import Any

import torch

from attnfuzz.actors.oracles import numbers
from attnfuzz.actors.oracles.error_budget import Budgets, ErrorBudget

NOTED = Path(__file__).resolve().with_name("budgets.jsonl")

NEAR = 0.3
"""Of the budget without noise: beyond, the one with noise is compared too."""

wrong = numbers._Comparison.wrong


def compared(error: torch.Tensor, budgets: Budgets) -> dict[str, float]:
    """The largest errors over their budgets, and how small these are."""
    own, whole = budgets.of_elements(error.numel()), budgets.whole or 1.0
    return {
        "whole": float(error.max()) / whole,
        "block": float((error / own).nan_to_num(nan=0.0).max()),
        "small": float(budgets.blocks.min()) / whole,
    }


def noting(self: Any) -> Any:
    """As before; writes how near it was."""
    judged = self.judged & self.actual.isfinite()
    if bool(judged.any()):
        error = torch.where(judged, self.error, 0.0)
        allowed = ErrorBudget(self.expected, self.others, judged, self.eps, self.smallest)
        found = compared(error, allowed.without_noise())
        deviation = self.expectation.deviation(self.name) if found["block"] > NEAR else None
        if deviation is not None and bool(deviation.reshape(-1)[judged].isfinite().all()):
            found = compared(error, allowed.with_noise(deviation.reshape(-1)))
        with NOTED.open("a") as noted:
            noted.write(json.dumps({"output": self.name, **found}) + "\n")
    return wrong(self)


numbers._Comparison.wrong = noting  # type: ignore[method-assign]
