"""What a call of the program should give: its reference in float64, in the program's own precision,
and under noise.

Costs two runs of the reference, and `DRAWS` more when a result is in doubt.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any

import torch

from attnfuzz.actors.child import tensors
from attnfuzz.actors.child.program_module import Outputs, ProgramModule
from attnfuzz.actors.oracles.noise import Noise

DRAWS = 4
"""Runs of the reference under noise."""

HEADROOM = 16.0
"""A result may overflow where the float64 computation comes this near to the dtype's maximum."""


@dataclass
class Expectation:
    """What one call of the program should give: `expected` in float64, `yardstick` in the
    program's own precision `dtype` (None where that precision lacks an operation). `flushes`:
    numbers below the smallest normal one may be taken for zeros, as vector units do by default."""

    program: ProgramModule
    call: int
    args: InitVar[tuple[Any, ...]]
    autocast: str | None
    flushes: bool = False
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

    def deviation(self, name: str) -> torch.Tensor | None:
        """Elementwise largest deviation of output `name` over all draws, in its shape; None where
        it is no tensor, or noise made it None."""
        if not isinstance(self.expected[name], torch.Tensor):
            return None
        self._draw_noise()
        expected = self.expected[name].detach()
        draws = [drawn[name].detach() for drawn in self._noisy if drawn[name] is not None]
        if not draws:
            return None
        return torch.stack([(drawn - expected).abs() for drawn in draws]).amax(0)

    def may_overflow(self) -> bool:
        """Whether some intermediate value comes near the largest that the dtype holds."""
        self._draw_noise()
        return self._largest * HEADROOM > torch.finfo(self.dtype).max


def _common_dtype(args: tuple[Any, ...]) -> torch.dtype | None:
    """The dtype that all floating-point arguments have, if there is one."""
    found = {value.dtype for value in args if tensors.is_floating(value)}
    return found.pop() if len(found) == 1 else None
