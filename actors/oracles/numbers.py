"""The numbers oracle: values against the float64 reference, within a budget that comes from data.

    budget = 10 * max(error of the yardstick, error under noise) + 4 * eps * max |expected|

The yardstick is the reference run in the precision of the program; the noise is Monte Carlo
arithmetic on the float64 reference (see `noise`), drawn only once something exceeds the budget
without it. A compiled result may also be ten times as wrong as the eager one, which was judged
before. Where the float64 result or the yardstick is not finite nothing is judged.

Costs two runs of the reference, and `DRAWS` more when a result is in doubt.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any

import torch

from attnfuzz.actors.child import tensors
from attnfuzz.actors.child.outcomes import Data, diff
from attnfuzz.actors.child.program_module import Outputs, ProgramModule
from attnfuzz.actors.oracles.noise import Noise

FACTOR, FLOOR, DRAWS = 10.0, 4.0, 4
HEADROOM = 16.0
"""A result may overflow where the float64 computation comes this near to the dtype's maximum."""
SHOWN = 8


@dataclass
class Expectation:
    """What one call of the program should give: `expected` in float64, `yardstick` in the
    program's own precision `dtype` (None where that precision lacks an operation)."""

    program: ProgramModule
    call: int
    args: InitVar[tuple[Any, ...]]
    autocast: str | None
    dtype: torch.dtype = field(init=False)
    out_dtype: torch.dtype | None = field(init=False)
    expected: Outputs = field(init=False)
    yardstick: Outputs | None = field(init=False)
    skipped: dict[str, str] = field(default_factory=dict)
    _noisy: list[Outputs] = field(default_factory=list)
    _largest: float = 0.0

    def __post_init__(self, args: tuple[Any, ...]) -> None:
        self.dtype = tensors.computation_dtype(args, self.autocast)
        self.out_dtype = _common_dtype(args) if self.autocast is None else None
        self.expected = self._run_reference(args, torch.float64)
        self.yardstick = None
        if self.dtype == torch.float64:
            self.yardstick = self.expected
            return
        try:
            self.yardstick = self._run_reference(args, self.dtype)
        except (RuntimeError, NotImplementedError) as error:
            self.skipped["yardstick"] = f"{self.dtype}: {error}"[:300]

    def _run_reference(self, args: tuple[Any, ...], dtype: torch.dtype) -> Outputs:
        program = self.program
        return program.run(program.reference, tuple(tensors.cast(a, dtype) for a in args))

    def _draw_noise(self) -> None:
        if self._noisy:
            return
        args = self.program.inputs(self.call)
        for seed in range(DRAWS):
            with Noise(self.dtype, seed) as noise:
                self._noisy.append(self._run_reference(args, torch.float64))
            self._largest = max(self._largest, noise.largest)

    def noise(self, name: str) -> Data | None:
        """Elementwise largest deviation of output `name` over all draws."""
        if not isinstance(self.expected[name], torch.Tensor):
            return None
        self._draw_noise()
        expected = self.expected[name].detach()
        draws = [drawn[name].detach() for drawn in self._noisy if drawn[name] is not None]
        if not draws:
            return None
        deviation = torch.stack([(drawn - expected).abs() for drawn in draws]).amax(0)
        return {"deviation": deviation, "finite": deviation.isfinite()}

    def may_overflow(self) -> bool:
        """Whether some intermediate value comes near the largest that the dtype holds."""
        self._draw_noise()
        return self._largest * HEADROOM > torch.finfo(self.dtype).max


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
        self.smallest = self.eps * max(finfo.smallest_normal, own.smallest_normal)
        self.error = (self.actual - self.expected).abs()
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
        self.at = int(wrong.nonzero()[0])
        return self._diff(f"{int(wrong.sum())} of {wrong.numel()} elements not finite", None, None)

    def wrong(self) -> Data | None:
        """The largest error, if it exceeds the budget."""
        judged = self.judged & self.actual.isfinite()
        if not bool(judged.any()):
            return None
        error = torch.where(judged, self.error, -1.0)
        self.at = int(error.argmax())
        largest = float(error[self.at])
        floor = FLOOR * (self.eps * float(self.expected[judged].abs().max()) + self.smallest)
        spread = max([float((o - self.expected)[judged].abs().max()) for o in self.others] + [0.0])
        budget = FACTOR * spread + floor
        if largest <= budget:
            return None
        noise = self.expectation.noise(self.name)
        if noise is not None:
            deviation, finite = noise["deviation"].reshape(-1), noise["finite"].reshape(-1)
            if not bool(finite[judged].all()):
                return None
            budget = FACTOR * max(spread, float(deviation[judged].max())) + floor
        return self._diff("", largest, budget) if largest > budget else None

    def _diff(self, note: str, error: float | None, budget: float | None) -> Data:
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
        )

    def elements(self) -> str:
        """The worst few elements, for a person."""
        badness = torch.where(self.actual.isfinite(), self.error, torch.inf)
        badness = torch.where(self.judged, badness, -1.0)
        lines = ["index  expected  actual"]
        for at in badness.topk(min(SHOWN, badness.numel())).indices.tolist():
            pair = f"{float(self.expected[at]):.9g}  {float(self.actual[at]):.9g}"
            lines.append(f"{_index(at, self.shape)}  {pair}")
        return "\n".join(lines)


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


def _common_dtype(args: tuple[Any, ...]) -> torch.dtype | None:
    """The dtype that all floating-point arguments have, if there is one."""
    found = {value.dtype for value in args if tensors.is_floating(value)}
    return found.pop() if len(found) == 1 else None
