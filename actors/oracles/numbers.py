"""The numbers oracle: values against the float64 reference, within the error budget, and finite
where the reference is.

Where the float64 result or the yardstick is not finite nothing is judged. A NaN or infinity in
place of a number is the failure kind "nonfinite", of the oracle "finiteness", unless values come
near enough to the dtype's maximum for an overflow, or noise makes it so too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from attnfuzz.actors.child.outcomes import Data, diff
from attnfuzz.actors.child.program_module import Outputs
from attnfuzz.actors.oracles.error_budget import BLOCK, Budgets, ErrorBudget
from attnfuzz.actors.oracles.expectation import Expectation
from attnfuzz.actors.oracles.oracle import Judged, Oracle, Run, fail_on

SHOWN = 8
NOISE_DECIDES = (
    "it is wrong, and so is its reference where rounding errors go through it: by as much as its "
    "largest element"
)

MAP_SIZE = 64
"""Rows and columns of an error map, at most."""


class Numbers(Oracle):
    """Judges the numbers of each run."""

    needs_reference = True

    def check(self, run: Run) -> None:
        eager = None if run.log is None else self.execution.eager[run.call].outputs
        check_numbers(self.execution, run.outputs, run.call, run.layer, eager)


def check_numbers(
    execution: Judged,
    outputs: Outputs,
    call: int,
    layer: str,
    eager: Outputs | None,
    oracle: str | None = None,
) -> None:
    """Judges `outputs` of a call; `eager` is as in `judge`, `oracle` who asks, where that is not
    the numbers themselves. Raises `Failed`."""
    expectation = execution.expectations[call]
    judgement = judge(expectation, outputs, eager)
    execution.skipped |= expectation.skipped
    kind, usual = "wrong_result", "numbers"
    if judgement.nonfinite:
        kind, usual = "nonfinite", "finiteness"
    fail_on(kind, oracle or usual, judgement.diffs, layer, judgement.evidence)


@dataclass(frozen=True)
class Judgement:
    """`diffs` of one run; `nonfinite` if any is a NaN or infinity where there should be none."""

    diffs: list[Data]
    nonfinite: bool
    evidence: dict[str, str]


def judge(expectation: Expectation, actual: Outputs, eager: Outputs | None = None) -> Judgement:
    """Judges every output of a run; `eager` is the eager implementation's, for a compiled one."""
    diffs: list[Data] = []
    evidence: dict[str, str] = {}
    nonfinite = False
    for name, expected in expectation.expected.items():
        comparison = _Comparison.of(expectation, name, expected, actual, eager)
        if comparison is None:
            continue
        infinite = comparison.nonfinite()
        found = infinite or comparison.wrong()
        if found is not None:
            nonfinite |= infinite is not None
            diffs.append(found)
            evidence[f"elements of {name}"] = comparison.elements()
            evidence[f"error map of {name}"] = comparison.error_map()
    return Judgement(diffs, nonfinite, evidence)


class _Comparison:
    """One output, flat, in float64."""

    def __init__(
        self,
        expectation: Expectation,
        name: str,
        expected: torch.Tensor,
        actual: torch.Tensor,
        others: list[torch.Tensor],
    ) -> None:
        self.expectation, self.name = expectation, name
        self.expected, self.shape = _flat(expected), tuple(expected.shape)
        self.actual, self.others = _flat(actual), [_flat(other) for other in others]
        self.judged = self.expected.isfinite()
        for other in self.others:
            self.judged &= other.isfinite()
        left_out = int((~self.judged).sum())
        if left_out:
            expectation.skipped[f"numbers.{name}"] = (
                f"{left_out} of {self.judged.numel()} elements: the yardstick is not finite there"
            )
        finfo = torch.finfo(expectation.dtype)
        own = torch.finfo(actual.dtype) if actual.is_floating_point() else finfo
        self.eps = max(finfo.eps, own.eps)
        self.smallest = max(finfo.smallest_normal, own.smallest_normal)
        if not expectation.flushes:
            self.smallest *= self.eps
        self.error = (self.actual - self.expected).abs()
        self.budget: float | torch.Tensor = torch.inf
        """What was exceeded: the budget of the whole, or that of each element."""
        self.at = 0

    @classmethod
    def of(
        cls,
        expectation: Expectation,
        name: str,
        expected: Any,
        actual: Outputs,
        eager: Outputs | None,
    ) -> _Comparison | None:
        """None if there is nothing to compare; a gradient of None is one of zeros."""
        value = actual.get(name)
        template = value if isinstance(value, torch.Tensor) else expected
        if not isinstance(template, torch.Tensor):
            return None
        others = [
            _or_zeros(outputs.get(name), template)
            for outputs in (expectation.yardstick, eager)
            if outputs is not None
        ]
        comparison = cls(
            expectation,
            name,
            _or_zeros(expected, template),
            _or_zeros(value, template),
            others,
        )
        return comparison if bool(comparison.judged.any()) else None

    def nonfinite(self) -> Data | None:
        """A NaN or infinity where neither reference nor overflow calls for one."""
        wrong = self.judged & ~self.actual.isfinite()
        if not bool(wrong.any()) or self.expectation.may_overflow():
            return None
        deviation = self.expectation.deviation(self.name)
        if deviation is not None:  # which sign an infinity is multiplied by, say
            wrong &= deviation.reshape(-1).isfinite()
            if not bool(wrong.any()):
                return None
        self.at = int(wrong.nonzero()[0])
        return self._diff(f"{int(wrong.sum())} of {wrong.numel()} elements not finite", None, None)

    def wrong(self) -> Data | None:
        """The largest error, if it exceeds the budget of the whole, or else the one that exceeds
        the budget of its block by most."""
        judged = self.judged & self.actual.isfinite()
        if not bool(judged.any()):
            return None
        error = torch.where(judged, self.error, -1.0)
        allowed = ErrorBudget(self.expected, self.others, judged, self.eps, self.smallest)
        found = self._above(error, allowed.without_noise())
        if found is None:
            return None
        deviation = self.expectation.deviation(self.name)
        if deviation is None:
            return found
        flat = deviation.reshape(-1)
        furthest = float(flat[judged].max())
        if math.isfinite(furthest):
            found = self._above(error, allowed.with_noise(flat))
            if found is not None:
                return found
        if not furthest < float(self.expected[judged].abs().max()):
            self.expectation.skipped[f"numbers.{self.name}"] = NOISE_DECIDES
        return None

    def _above(self, error: torch.Tensor, budgets: Budgets) -> Data | None:
        self.at = int(error.argmax())
        largest = float(error[self.at])
        if largest > budgets.whole:
            self.budget = budgets.whole
            return self._diff("", largest, budgets.whole)
        self.budget = budgets.of_elements(error.numel())
        self.at = int((error - self.budget).argmax())
        largest, budget = float(error[self.at]), float(self.budget[self.at])
        if largest <= budget:
            return None
        start = self.at - self.at % BLOCK
        stop = min(start + BLOCK, error.numel())
        return self._diff("", largest, budget, (start, stop))

    def _diff(
        self,
        note: str,
        error: float | None,
        budget: float | None,
        block: tuple[int, int] | None = None,
    ) -> Data:
        place = _index(self.at, self.shape)
        actual = f"{float(self.actual[self.at]):.9g} at {place}"
        return diff(
            self.name,
            "value",
            f"{float(self.expected[self.at]):.9g} at {place}",
            f"{actual} ({note})" if note else actual,
            call=self.expectation.call,
            error=error,
            budget=budget,
            block=block,
        )

    def elements(self) -> str:
        """The worst few elements, for a person."""
        badness = torch.where(self.actual.isfinite(), self._ratio(), torch.inf)
        badness = torch.where(self.judged, badness, -1.0)
        lines = ["index  expected  actual"]
        for at in badness.topk(min(SHOWN, badness.numel())).indices.tolist():
            pair = f"{float(self.expected[at]):.9g}  {float(self.actual[at]):.9g}"
            lines.append(f"{_index(at, self.shape)}  {pair}")
        return "\n".join(lines)

    def _ratio(self) -> torch.Tensor:
        """The error of each element, and over the budget where that is known."""
        if isinstance(self.budget, float) and self.budget == torch.inf:
            return self.error
        return self.error / self.budget

    def error_map(self) -> str:
        """Where in the last two dimensions the error is above the budget, a character for each
        place, which stands for the worst element there of the other dimensions."""
        error = torch.where(self.actual.isfinite(), self.error / self.budget, torch.inf)
        error = torch.where(self.judged, error, 0.0)
        rows, columns = (1, 1, *self.shape)[-2:]
        worst = error.reshape(-1, rows, columns).amax(0)
        size = min(rows, MAP_SIZE), min(columns, MAP_SIZE)
        worst = torch.nn.functional.adaptive_max_pool2d(worst[None], size)[0]
        return "\n".join([
            f"{rows} x {columns}: . within the budget, 0 to 9 above it by that power of ten, "
            "N not finite",
            *("".join(map(_level, row)) for row in worst.tolist()),
        ])  # fmt: skip


def _level(ratio: float) -> str:
    if ratio == math.inf:
        return "N"
    return "." if ratio <= 1 else str(min(9, int(math.log10(ratio))))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64).reshape(-1)


def _or_zeros(value: Any, template: torch.Tensor) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.zeros_like(template)


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return tuple(reversed(index))
