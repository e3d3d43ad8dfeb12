"""Steps that move, cut and copy what is there: no number changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import (
    Dim,
    Extent,
    Name,
    Scope,
    Unfit,
    Value,
    broadcast,
    dimension,
    same,
)
from attnfuzz.generators.render.devices import beside
from attnfuzz.generators.render.sizes import Size, commas, plus, product, tuple_of


@dataclass(frozen=True, kw_only=True)
class Permute(Step):
    """The dimensions in the order `dims`; where two of them change places, as `transpose`,
    `swapaxes` or `movedim` say it too."""

    kind: Literal["permute"] = "permute"
    of: Name
    to: Name
    dims: tuple[Dim, ...]
    form: Literal["permute", "transpose", "swapaxes", "movedim", "mT"] = "permute"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        if sorted(self.dims) != list(range(value.rank)):
            raise Unfit("dims", f"expected a permutation of {value.rank} dimensions")
        if self.dims == tuple(range(value.rank)):
            raise Unfit("dims", "expected some dimension to be moved")
        if self.form not in ("permute", "movedim") and len(self._moved()) != 2:
            raise Unfit("form", "expected permute or movedim, as more than two dimensions move")
        if self.form == "mT" and self._moved() != [value.rank - 2, value.rank - 1]:
            raise Unfit("form", "expected another: mT exchanges the last two dimensions")
        return (value.shaped(tuple(value.shape[dim] for dim in self.dims)),)

    @property
    def far(self) -> bool:
        """Whether some dimension moves by more than a place. Neighbours that change places are in
        nearly every attention: length and heads, or the keys' last two."""
        return any(abs(place - dim) > 1 for place, dim in enumerate(self.dims))

    def _moved(self) -> list[int]:
        return [place for place, dim in enumerate(self.dims) if place != dim]

    def text(self, scope: Scope) -> list[str]:
        if self.form == "mT":
            return [f"{self.to} = {self.of}.mT"]
        if self.form == "permute":
            return [f"{self.to} = {self.of}.permute({commas(self.dims)})"]
        if self.form == "movedim":
            there = tuple_of(tuple(range(len(self.dims))))
            return [f"{self.to} = {self.of}.movedim({tuple_of(self.dims)}, {there})"]
        return [f"{self.to} = {self.of}.{self.form}({commas(tuple(self._moved()))})"]


@dataclass(frozen=True, kw_only=True)
class Flatten(Step):
    """Dimensions `first` to `last` as one. A `view` takes a contiguous tensor, as it is."""

    kind: Literal["flatten"] = "flatten"
    of: Name
    to: Name
    first: Dim
    last: Dim
    form: Literal["flatten", "reshape", "view"] = "flatten"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        dimension(value, self.last, "last")
        if self.first >= self.last:
            raise Unfit("first", f"expected a dimension before {self.last}")
        if self.form == "view" and not value.contiguous:
            raise Unfit("form", "expected flatten or reshape: it may not be contiguous")
        return (value.shaped(self._shape(value), value.contiguous),)

    def _shape(self, value: Value) -> tuple[Size, ...]:
        before, after = value.shape[: self.first], value.shape[self.last + 1 :]
        return (*before, product(value.shape[self.first : self.last + 1]), *after)

    def text(self, scope: Scope) -> list[str]:
        if self.form == "flatten":
            return [f"{self.to} = {self.of}.flatten({self.first}, {self.last})"]
        shape = list(self._shape(scope.values[self.of]))
        if 0 not in shape:
            shape[self.first] = -1
        return [f"{self.to} = {self.of}.{self.form}({commas(tuple(shape))})"]


@dataclass(frozen=True, kw_only=True)
class Unflatten(Step):
    """Dimension `dim` as several: `parts` are how long these are. A view by any name."""

    kind: Literal["unflatten"] = "unflatten"
    of: Name
    to: Name
    dim: Dim
    parts: tuple[Extent, ...]
    form: Literal["unflatten", "view", "reshape"] = "unflatten"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        size, sizes = dimension(value, self.dim, "dim"), self._sizes(scope)
        if len(self.parts) < 2:
            raise Unfit("parts", "expected two at least")
        if not same(size, product(sizes)):
            raise Unfit("parts", f"expected parts of {size}, got {commas(sizes)}")
        shape = (*value.shape[: self.dim], *sizes, *value.shape[self.dim + 1 :])
        return (value.shaped(shape, value.contiguous),)

    def _sizes(self, scope: Scope) -> tuple[Size, ...]:
        return tuple(scope.size(part) for part in self.parts)

    def text(self, scope: Scope) -> list[str]:
        if self.form == "unflatten":
            sizes = tuple_of(self._sizes(scope))
            return [f"{self.to} = {self.of}.unflatten({self.dim}, {sizes})"]
        shape = self.values(scope)[0].shape
        return [f"{self.to} = {self.of}.{self.form}({commas(shape)})"]


@dataclass(frozen=True, kw_only=True)
class Unsqueeze(Step):
    """A further dimension of extent 1."""

    kind: Literal["unsqueeze"] = "unsqueeze"
    of: Name
    to: Name
    dim: Dim
    form: Literal["unsqueeze", "none"] = "unsqueeze"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        if self.dim > value.rank:
            raise Unfit("dim", f"expected at most {value.rank}, got {self.dim}")
        shape = (*value.shape[: self.dim], 1, *value.shape[self.dim :])
        return (value.shaped(shape, value.contiguous),)

    def text(self, scope: Scope) -> list[str]:
        if self.form == "unsqueeze":
            return [f"{self.to} = {self.of}.unsqueeze({self.dim})"]
        after = ", ..." if self.dim == 0 else ""
        return [f"{self.to} = {self.of}[{':, ' * self.dim}None{after}]"]


@dataclass(frozen=True, kw_only=True)
class Squeeze(Step):
    """Without dimension `dim`, which has extent 1."""

    kind: Literal["squeeze"] = "squeeze"
    of: Name
    to: Name
    dim: Dim

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        if dimension(value, self.dim, "dim") != 1:
            raise Unfit("dim", "expected a dimension of extent 1")
        shape = (*value.shape[: self.dim], *value.shape[self.dim + 1 :])
        return (value.shaped(shape, value.contiguous),)

    def text(self, scope: Scope) -> list[str]:
        return [f"{self.to} = {self.of}.squeeze({self.dim})"]


@dataclass(frozen=True, kw_only=True)
class Expand(Step):
    """Dimension `dim` of extent 1 as long as `size`, or repeated so often (`repeat`)."""

    kind: Literal["expand"] = "expand"
    of: Name
    to: Name
    dim: Dim
    size: Extent
    form: Literal["expand", "repeat", "repeat_interleave"] = "expand"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        if dimension(value, self.dim, "dim") != 1:
            raise Unfit("dim", "expected a dimension of extent 1")
        shape = list(value.shape)
        shape[self.dim] = scope.size(self.size)
        return (value.shaped(tuple(shape)),)

    def text(self, scope: Scope) -> list[str]:
        size = scope.size(self.size)
        if self.form == "repeat_interleave":
            return [f"{self.to} = {self.of}.repeat_interleave({size}, dim={self.dim})"]
        kept = 1 if self.form == "repeat" else -1
        sizes = [kept] * scope.values[self.of].rank
        written = [*sizes[: self.dim], size, *sizes[self.dim + 1 :]]
        return [f"{self.to} = {self.of}.{self.form}({commas(tuple(written))})"]


@dataclass(frozen=True, kw_only=True)
class ExpandAs(Step):
    """Expanded to the shape of `like`."""

    kind: Literal["expand_as"] = "expand_as"
    of: Name
    like: Name
    to: Name
    operands: ClassVar[tuple[str, ...]] = ("of", "like")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value, like = scope.get(self.of, "of"), scope.get(self.like, "like")
        shape = broadcast(value, like, "like")
        if len(shape) != like.rank or not all(map(same, shape, like.shape)):
            raise Unfit("like", f"expected one that {value.shape} broadcasts to, got {like.shape}")
        return (value.shaped(shape),)

    def text(self, scope: Scope) -> list[str]:
        return [f"{self.to} = {self.of}.expand_as({self.like})"]


@dataclass(frozen=True, kw_only=True)
class Slice(Step):
    """Of dimension `dim` what lies from `start` to `stop`, as Python's slices have it: a negative
    `stop` counts from the end."""

    kind: Literal["slice"] = "slice"
    of: Name
    to: Name
    dim: Dim
    start: Annotated[int, Field(ge=0, le=64)] = 0
    stop: Annotated[int, Field(ge=-64, le=64)] | None = None
    form: Literal["index", "narrow"] = "index"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        size = dimension(value, self.dim, "dim")
        if self.stop == 0 or (self.stop is None and not self.start):
            raise Unfit("stop", "expected some to be cut off, and some to be left")
        left = self._left(size)
        least = max(self.stop or 0, self.start + 1)
        if isinstance(left, int) and left < 1 or isinstance(size, int) and size < least:
            raise Unfit("stop", f"expected something to be left of {size}")
        shape = list(value.shape)
        shape[self.dim] = left
        return (value.shaped(tuple(shape)),)

    def _left(self, size: Size) -> Size:
        if self.stop is not None and self.stop > 0:
            return self.stop - self.start
        return plus(size, (self.stop or 0) - self.start)

    def text(self, scope: Scope) -> list[str]:
        if self.form == "narrow":
            left = self._left(scope.values[self.of].shape[self.dim])
            return [f"{self.to} = {self.of}.narrow({self.dim}, {self.start}, {left})"]
        stop = "" if self.stop is None else self.stop
        return [f"{self.to} = {self.of}[{':, ' * self.dim}{self.start or ''}:{stop}]"]


@dataclass(frozen=True, kw_only=True)
class Contiguous(Step):
    """A copy, or what need not be copied as it is (`contiguous`)."""

    kind: Literal["contiguous"] = "contiguous"
    of: Name
    to: Name
    form: Literal["contiguous", "clone"] = "contiguous"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        return (replace(value, contiguous=self.form == "contiguous" or value.contiguous),)

    def text(self, scope: Scope) -> list[str]:
        return [f"{self.to} = {self.of}.{self.form}()"]


@dataclass(frozen=True, kw_only=True)
class Flip(Step):
    """Dimension `dim` backwards, or moved round by one (`roll`). Backwards may be by a tensor of
    positions too, as tokens are put in another order."""

    kind: Literal["flip"] = "flip"
    of: Name
    to: Name
    dim: Dim
    form: Literal["flip", "roll", "index", "index_select"] = "flip"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        dimension(value, self.dim, "dim")
        return (value.shaped(value.shape),)

    def text(self, scope: Scope) -> list[str]:
        if self.form == "roll":
            return [f"{self.to} = {self.of}.roll(1, dims={self.dim})"]
        if self.form == "flip":
            return [f"{self.to} = {self.of}.flip({self.dim})"]
        last = plus(scope.values[self.of].shape[self.dim], -1)
        order = f"torch.arange({last}, -1, -1{beside(scope.device, self.of)})"
        if self.form == "index":
            return [f"{self.to} = {self.of}[{':, ' * self.dim}{order}]"]
        return [f"{self.to} = {self.of}.index_select({self.dim}, {order})"]
