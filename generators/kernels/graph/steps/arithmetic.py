"""Steps that compute element by element, projections and norms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import (
    FLOATS,
    Name,
    Scope,
    Unfit,
    Value,
    broadcast,
    depends,
    made_of,
    promoted,
    same,
)
from attnfuzz.generators.render.sizes import tuple_of

EPSILON = "1e-5"
Factor = Annotated[float, Field(allow_inf_nan=False, gt=0, le=1e4)]


@dataclass(frozen=True, kw_only=True)
class Cast(Step):
    """The value as float32, or as a dtype that holds all its numbers; or back to that of `like`.
    So nothing is rounded but to the dtype of an argument."""

    kind: Literal["cast"] = "cast"
    of: Name
    to: Name
    dtype: Literal["float32", "float64"] = "float32"
    like: Name | None = None
    operands: ClassVar[tuple[str, ...]] = ("of", "like")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.tensor(self.of, "of")
        dtype = self.dtype if self.like is None else scope.tensor(self.like, "like").dtype
        if self.like is None and FLOATS.index(dtype) < FLOATS.index(value.dtype):
            raise Unfit("dtype", f"expected one that holds {value.dtype}")
        return (replace(value, dtype=dtype),)

    def text(self, scope: Scope) -> list[str]:
        if self.like is not None:
            return [f"{self.to} = {self.of}.to({self.like}.dtype)"]
        return [f"{self.to} = {self.of}.{'float' if self.dtype == 'float32' else 'double'}()"]

    def plain(self, scope: Scope) -> list[str]:
        return [f"{self.to} = {self.of}"] if self.to != self.of else []


@dataclass(frozen=True, kw_only=True)
class Binary(Step):
    """Both sides put together element by element, broadcast."""

    kind: Literal["binary"] = "binary"
    left: Name
    right: Name
    to: Name
    op: Literal["+", "-", "*", "/"] = "+"
    operands: ClassVar[tuple[str, ...]] = ("left", "right")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        left, right = scope.tensor(self.left, "left"), scope.tensor(self.right, "right")
        shape = broadcast(left, right, "right")
        wide = [value for value in (left, right) if value.rank] or [left, right]
        return (made_of(shape, promoted(*wide), left, right),)

    def text(self, scope: Scope) -> list[str]:
        return [f"{self.to} = {self.left} {self.op} {self.right}"]


@dataclass(frozen=True, kw_only=True)
class Scale(Step):
    """The value times a number, which is 1/sqrt(D) unless there is a `factor`; written as `x * s`,
    `x.mul(s)`, `x / r` or `x.div(r)`, or with a 0-d tensor made there (`tensor`, `full`,
    `div_full`)."""

    kind: Literal["scale"] = "scale"
    of: Name
    to: Name
    factor: Factor | None = None
    form: Literal["*", "mul", "/", "div", "tensor", "full", "div_full"] = "*"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.tensor(self.of, "of")
        return (replace(value, contiguous=False),)

    def text(self, scope: Scope) -> list[str]:
        divided = self.form in ("/", "div", "div_full")
        number = _number(scope, self.factor, divided)
        source, like = self.of, scope.like(self.of)
        made = {
            "*": f"{source} * {number}",
            "mul": f"{source}.mul({number})",
            "/": f"{source} / {f'({number})' if '**' in number else number}",
            "div": f"{source}.div({number})",
            "tensor": f"{source} * torch.tensor({number}{like})",
            "full": f"{source} * torch.full((), {number}{like})",
            "div_full": f"{source}.div(torch.full((), {number}{like}))",
        }
        return [f"{self.to} = {made[self.form]}"]


def _number(scope: Scope, factor: float | None, divided: bool) -> str:
    """The factor, or its inverse, as a constant expression."""
    if factor is not None:
        return repr(1.0 / factor if divided else factor)
    dim = scope.sizes["D"]
    root = math.isqrt(int(dim))
    if root * root == dim and not math.log2(root) % 1:
        return repr(float(root) if divided else 1.0 / root)
    return f"{dim} ** {'0.5' if divided else '-0.5'}"


@dataclass(frozen=True, kw_only=True)
class IsZero(Step):
    """Where the value is 0."""

    kind: Literal["is_zero"] = "is_zero"
    of: Name
    to: Name

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.get(self.of, "of")
        return (replace(value, dtype="bool", of=frozenset()),)

    def text(self, scope: Scope) -> list[str]:
        return [f"{self.to} = {self.of} == 0"]


@dataclass(frozen=True, kw_only=True)
class Pointwise(Step):
    """A function of each element. `softcap` is 5 tanh(x / 5); `dropout` is in evaluation."""

    kind: Literal["pointwise"] = "pointwise"
    of: Name
    to: Name
    function: Literal["tanh", "sigmoid", "gelu", "silu", "softcap", "dropout", "plus_zero"] = "tanh"

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.tensor(self.of, "of")
        return (replace(value, contiguous=False),)

    def text(self, scope: Scope) -> list[str]:
        of = self.of
        made = {
            "tanh": f"torch.tanh({of})",
            "sigmoid": f"torch.sigmoid({of})",
            "gelu": f"F.gelu({of})",
            "silu": f"F.silu({of})",
            "softcap": f"5.0 * torch.tanh({of} / 5.0)",
            "dropout": f"F.dropout({of}, p=0.1, training=False)",
            "plus_zero": f"{of} + 0.0",
        }
        return [f"{self.to} = {made[self.function]}"]


@dataclass(frozen=True, kw_only=True)
class Linear(Step):
    """The last dimension projected by `weight`, `[out, in]`."""

    kind: Literal["linear"] = "linear"
    of: Name
    weight: Name
    to: Name
    form: Literal["linear", "matmul"] = "linear"
    operands: ClassVar[tuple[str, ...]] = ("of", "weight")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value, weight = scope.tensor(self.of, "of"), scope.tensor(self.weight, "weight")
        if weight.rank != 2 or not value.rank or not same(weight.shape[1], value.shape[-1]):
            raise Unfit("weight", f"expected [out, {value.shape[-1:]}], got {weight.shape}")
        if weight.dtype != value.dtype:
            raise Unfit("weight", f"expected {value.dtype}, got {weight.dtype}")
        shape = (*value.shape[:-1], weight.shape[0])
        return (made_of(shape, value.dtype, value, weight),)

    def text(self, scope: Scope) -> list[str]:
        if self.form == "matmul":
            return [f"{self.to} = {self.of} @ {self.weight}.T"]
        return [f"{self.to} = F.linear({self.of}, {self.weight})"]


@dataclass(frozen=True, kw_only=True)
class Norm(Step):
    """The last dimension normalized: RMS norm or layer norm, with a weight or without."""

    kind: Literal["norm"] = "norm"
    of: Name
    to: Name
    weight: Name | None = None
    form: Literal["rms_norm", "layer_norm"] = "rms_norm"
    operands: ClassVar[tuple[str, ...]] = ("of", "weight")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.tensor(self.of, "of")
        if not value.rank or not isinstance(value.shape[-1], int):
            raise Unfit("of", "expected a last dimension that is the same in every call")
        if self.form == "layer_norm" and value.shape[-1] < 2:
            raise Unfit("form", "expected rms_norm: one number less its mean is rounding alone")
        if self.weight is None:
            return (replace(value, contiguous=False),)
        weight = scope.tensor(self.weight, "weight")
        if weight.shape != value.shape[-1:] or weight.dtype != value.dtype:
            raise Unfit("weight", f"expected {value.shape[-1:]} of {value.dtype}")
        return (replace(value, contiguous=False, of=depends(value, weight)),)

    def text(self, scope: Scope) -> list[str]:
        shape = tuple_of(scope.values[self.of].shape[-1:])
        weight = f", weight={self.weight}" if self.weight is not None else ""
        return [f"{self.to} = F.{self.form}({self.of}, {shape}{weight}, eps={EPSILON})"]

    def plain(self, scope: Scope) -> list[str]:
        lines = [f"t = {self.of}"]
        if self.form == "layer_norm":
            lines = [f"t = {self.of} - {self.of}.mean(dim=-1, keepdim=True)"]
        weight = f" * {self.weight}" if self.weight is not None else ""
        root = f"torch.rsqrt(t.square().mean(dim=-1, keepdim=True) + {EPSILON})"
        return [*lines, f"{self.to} = t * {root}{weight}"]

    def without(self, names: frozenset[str]) -> Step | None:
        return replace(self, weight=None) if self.of not in names else None
