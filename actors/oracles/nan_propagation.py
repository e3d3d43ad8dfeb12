"""The NaN oracle: what a NaN among the inputs makes NaN is NaN, and no number.

Softmax of a row with a NaN is NaN throughout, and so is a sum with a NaN in it: IEEE 754, and what
torch's own operators do (a fused kernel that gave 0 was a bug: pytorch/pytorch#141128). Judged are
the elements of the output that are NaN in float64, in the program's own precision and, for a
compiled program, in eager too, where the job says that nothing but a NaN in q, k or v can be the
reason (`oracles.propagates_nan`): no score modification chooses, no infinity is among the inputs,
and there is no mask, or q alone has the NaN and each query sees a key. Costs nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from attnfuzz.actors.child.outcomes import Data, diff
from attnfuzz.actors.oracles.oracle import Oracle, Run, fail_on


class NanPropagation(Oracle):
    """Judges the output of each run of a program that has NaN among its inputs."""

    needs_reference = True

    def check(self, run: Run) -> None:
        if not (self.execution.settings.get("oracles") or {}).get("propagates_nan"):
            return
        expectation = self.execution.expectations[run.call]
        others = [expectation.expected]
        if expectation.yardstick is not None:
            others.append(expectation.yardstick)
        if run.log is not None and run.call < len(self.execution.eager):
            others.append(self.execution.eager[run.call].outputs)
        found = lost([other.get("out") for other in others], run.outputs.get("out"), run.call)
        fail_on("wrong_result", "nan", found, run.layer)


def lost(expected: list[Any], actual: Any, call: int) -> list[Data]:
    """Where each of `expected` is NaN and `actual` is not, if all are tensors of one shape."""
    if not all(isinstance(t, torch.Tensor) and t.shape == actual.shape for t in expected):
        return []
    wrong = ~actual.detach().isnan()
    for one in expected:
        wrong &= one.detach().isnan()
    if not bool(wrong.any()):
        return []
    place = tuple(wrong.nonzero()[0].tolist())
    count = f"{int(wrong.sum())} of {wrong.numel()} elements are no NaN"
    told = f"{float(actual.detach()[place]):.9g} at {place} ({count})"
    return [diff("out", "nan", f"nan at {place}", told, call=call)]
