"""Rotary position embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import (
    Dim,
    Name,
    Scope,
    Unfit,
    Value,
    dimension,
    made_of,
)

Rotation = Literal["halves", "interleaved", "complex"]
FREQUENCIES = "inv_freq"
"""The argument that a graph with such a step is given, `[D / 2]`, float32, or float64 as q is: the
reference computes angles with the same numbers."""


def frequencies(dim: int, dtype: str) -> str:
    """The expression for 10000**(-2 i / D) (Su et al., 2021), for q of that dtype."""
    wide = "float64" if dtype == "float64" else "float32"
    return f"10000.0 ** (-torch.arange(0, {dim}, 2, dtype=torch.{wide}) / {dim})"


@dataclass(frozen=True, kw_only=True)
class Rotary(Step):
    """The last dimension, D, rotated pair by pair by position * `inv_freq`, where positions are
    along dimension `dim`. Pairs are i and i + D / 2 (`halves`), or 2 i and 2 i + 1 (`interleaved`,
    or as complex numbers: `complex`). Computed in float32 at least, given in the dtype it had."""

    kind: Literal["rotary"] = "rotary"
    of: Name
    to: Name
    dim: Dim = 2
    form: Rotation = "halves"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.tensor(self.of, "of")
        dimension(value, self.dim, "dim")
        if self.dim == value.rank - 1:
            raise Unfit("dim", "expected another than the last, which is rotated")
        if value.shape[-1] != scope.sizes["D"] or int(scope.sizes["D"]) % 2:
            raise Unfit("of", f"expected an even last dimension of {scope.sizes['D']}")
        if value.masked:
            raise Unfit("of", "expected finite numbers")
        return (made_of(value.shape, value.dtype, value),)

    def text(self, scope: Scope) -> list[str]:
        if scope.decode is not None:
            return self._written(scope, "positions", self.form)
        length = scope.values[self.of].shape[self.dim]
        return self._written(scope, f"torch.arange({length}, device={self.of}.device)", self.form)

    def plain(self, scope: Scope) -> list[str]:
        positions = f"torch.arange({scope.values[self.of].shape[self.dim]})"
        # Complex numbers are made of float32 there.
        form = "interleaved" if self.form == "complex" else self.form
        return self._written(scope, positions, form)

    def _written(self, scope: Scope, positions: str, form: str) -> list[str]:
        value, of = scope.values[self.of], self.of
        place = ", ".join([":", *["None"] * (value.rank - 1 - self.dim)])
        lines = [f"angles = {positions}[{place}] * {FREQUENCIES}"]
        if form == "complex":
            wide = of if value.dtype in ("float32", "float64") else f"{of}.float()"
            wide += "" if value.contiguous else ".contiguous()"
            lines.append(f"pairs = torch.view_as_complex({wide}.unflatten(-1, (-1, 2)))")
            turned = "torch.polar(torch.ones_like(angles), angles)"
            made = f"torch.view_as_real(pairs * {turned}).flatten(-2)"
        else:
            lines.append("cos, sin = angles.cos(), angles.sin()")
            both = "x1 * cos - x2 * sin, x2 * cos + x1 * sin"
            if form == "halves":
                lines.append(f"x1, x2 = {of}.chunk(2, dim=-1)")
                made = f"torch.cat(({both}), dim=-1)"
            else:
                lines.append(f"x1, x2 = {of}[..., ::2], {of}[..., 1::2]")
                made = f"torch.stack(({both}), dim=-1).flatten(-2)"
        half = value.dtype in ("float16", "bfloat16")
        return [*lines, f"{self.to} = {made}" + (f".to({of}.dtype)" if half else "")]
