"""The preload file of `budgets.py`: notes how near each result that is judged comes to its budgets.

It is copied into a folder. At each comparison a line of JSON is added to `budgets.jsonl` beside it:
{"output": "dq", "whole": 0.02, "block": 0.08, "small": 0.01}. `whole` and `block` are the largest
error over the budget of the whole and that of its block, with noise where that is drawn; `small` is
the smallest block's budget over that of the whole.
"""

import json
from pathlib import Path
from typing import Any

import torch

from attnfuzz.actors.oracles import numbers
from attnfuzz.actors.oracles.error_budget import Budgets

NOTED = Path(__file__).resolve().with_name("budgets.jsonl")

latest: dict[str, Any] = {}
above, wrong = numbers._Comparison._above, numbers._Comparison.wrong


def noting_above(self: Any, error: torch.Tensor, budgets: Budgets) -> Any:
    """As before; `latest` has what was compared."""
    own = budgets.of_elements(error.numel())
    whole = budgets.whole or 1.0
    latest.update(
        whole=float(error.max()) / whole,
        block=float((error / own).nan_to_num(nan=0.0).max()),
        small=float(budgets.blocks.min()) / whole,
    )
    return above(self, error, budgets)


def noting_wrong(self: Any) -> Any:
    """As before; writes what the last comparison has seen."""
    latest.clear()
    found = wrong(self)
    if latest:
        with NOTED.open("a") as noted:
            noted.write(json.dumps({"output": self.name, **latest}) + "\n")
    return found


numbers._Comparison._above = noting_above  # type: ignore[method-assign]
numbers._Comparison.wrong = noting_wrong  # type: ignore[method-assign]
