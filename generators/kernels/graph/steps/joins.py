"""Steps that put several values together, or take one apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import (
    Dim,
    Name,
    Scope,
    Unfit,
    Value,
    dimension,
    made_of,
    same,
)
from attnfuzz.generators.render.sizes import Size, total

Several = Annotated[tuple[Name, ...], Field(min_length=2, max_length=4)]


def _alike(values: list[Value], but: int | None) -> None:
    if len(values) < 2:
        raise Unfit("of", "expected two at least")
    first = values[0]
    for value in values[1:]:
        pairs = list(zip(first.shape, value.shape, strict=False))
        fits = value.rank == first.rank and value.dtype == first.dtype
        if not fits or not all(same(a, b) for dim, (a, b) in enumerate(pairs) if dim != but):
            raise Unfit("of", f"expected tensors alike, got {first.shape} and {value.shape}")


@dataclass(frozen=True, kw_only=True)
class Cat(Step):
    """Values one after the other along dimension `dim`."""

    kind: Literal["cat"] = "cat"
    of: Several
    to: Name
    dim: Dim

    def values(self, scope: Scope) -> tuple[Value, ...]:
        values = [scope.get(name, "of") for name in self.of]
        _alike(values, self.dim)
        dimension(values[0], self.dim, "dim")
        length: Size = values[0].shape[self.dim]
        for value in values[1:]:
            length = total(length, value.shape[self.dim])
        shape = list(values[0].shape)
        shape[self.dim] = length
        return (made_of(tuple(shape), values[0].dtype, *values, contiguous=True),)

    def text(self, scope: Scope) -> list[str]:
        return [f"{self.to} = torch.cat(({', '.join(self.of)}), dim={self.dim})"]


@dataclass(frozen=True, kw_only=True)
class Stack(Step):
    """Values along a new dimension `dim`."""

    kind: Literal["stack"] = "stack"
    of: Several
    to: Name
    dim: Dim

    def values(self, scope: Scope) -> tuple[Value, ...]:
        values = [scope.get(name, "of") for name in self.of]
        _alike(values, None)
        if self.dim > values[0].rank:
            raise Unfit("dim", f"expected at most {values[0].rank}, got {self.dim}")
        shape = (*values[0].shape[: self.dim], len(values), *values[0].shape[self.dim :])
        return (made_of(shape, values[0].dtype, *values, contiguous=True),)

    def text(self, scope: Scope) -> list[str]:
        return [f"{self.to} = torch.stack(({', '.join(self.of)}), dim={self.dim})"]


@dataclass(frozen=True, kw_only=True)
class Split(Step):
    """Dimension `dim` cut into as many equal parts as there are names; with `unbind` it is as long
    as that, and gone."""

    kind: Literal["split"] = "split"
    of: Name
    to: Several
    dim: Dim
    form: Literal["chunk", "split", "unbind"] = "chunk"
    operands: ClassVar[tuple[str, ...]] = ("of",)

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        size, count = dimension(value, self.dim, "dim"), len(self.to)
        if len(set(self.to)) != count or count < 2:
            raise Unfit("to", "expected distinct names, two at least")
        if not isinstance(size, int):
            raise Unfit("dim", "expected one that is the same in every call")
        if size % count or (self.form == "unbind" and size != count):
            raise Unfit("dim", f"expected {count} equal parts, got {size}")
        shape = list(value.shape)
        shape[self.dim : self.dim + 1] = [] if self.form == "unbind" else [size // count]
        return (value.shaped(tuple(shape)),) * count

    def text(self, scope: Scope) -> list[str]:
        names = ", ".join(self.to)
        if self.form == "unbind":
            return [f"{names} = {self.of}.unbind({self.dim})"]
        given = len(self.to)
        if self.form == "split":
            size = scope.values[self.of].shape[self.dim]
            assert isinstance(size, int)
            given = size // len(self.to)
        return [f"{names} = {self.of}.{self.form}({given}, dim={self.dim})"]
