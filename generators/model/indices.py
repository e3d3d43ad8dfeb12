"""Integer expressions over `b`, `h`, `q_idx`, `kv_idx`, and the tensors that mods capture.

Everything is plain data. An expression means the same thing whether the indices are the 0-d
tensors that flex_attention hands to a mod under vmap, or broadcast index grids `[B, H, Lq, Lkv]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

STRICT = ConfigDict(extra="forbid", strict=False)

Axis = Literal["b", "h", "q_idx", "kv_idx"]
IndexOp = Literal["+", "-", "*", "//", "%", "minimum", "maximum"]
TableDtype = Literal["int32", "int64", "bool", "float32", "float16", "bfloat16", "float64"]
TableInit = Literal["normal", "uniform", "arange", "sorted", "coin", "zeros", "ones"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A tensor that a mod captures from its closure.

    `axes` gives its dimensions by what they are indexed with; the extent of an axis is that of the
    program's shape for the current call (B, Hq, Lq, Lkv). An empty `axes` is a 0-d tensor.
    `unit` lists positions (into `axes`) whose extent is 1 instead and which are indexed with 0.
    `init` fills it: `sorted` is non-decreasing ids in `[0, limit)` along the last dimension
    (document ids), `coin` is true/1 with probability 1/2, `uniform` is integers in `[0, limit)` or
    floats in `[0, 1)`. `limit` matters to `uniform` and `sorted` integers only.
    """

    __pydantic_config__ = STRICT
    axes: tuple[Axis, ...] = ()
    dtype: TableDtype = "int64"
    init: TableInit = "uniform"
    limit: Annotated[int, Field(ge=1, le=4096)] = 2
    unit: tuple[Annotated[int, Field(ge=0, le=3)], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Index:
    """One of the four indices."""

    __pydantic_config__ = STRICT
    kind: Literal["index"] = "index"
    axis: Axis


@dataclass(frozen=True, kw_only=True)
class IntConst:
    """An integer that a signed 32-bit number holds."""

    __pydantic_config__ = STRICT
    kind: Literal["int"] = "int"
    value: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


@dataclass(frozen=True, kw_only=True)
class IntArgument:
    """The number that is another in each call (`Program.argument`): captured as an int, or as a
    tensor without dimensions."""

    __pydantic_config__ = STRICT
    kind: Literal["argument"] = "argument"


@dataclass(frozen=True, kw_only=True)
class IntBinary:
    """`left op right`. `//` and `%` have Python's (floor) meaning; the right side of both is a
    nonzero constant (see `generators.model.validity`)."""

    __pydantic_config__ = STRICT
    kind: Literal["binary"] = "binary"
    op: IndexOp
    left: IntExpr
    right: IntExpr


@dataclass(frozen=True, kw_only=True)
class IntLookup:
    """`table[axes…]`, an integer table; `chained` renders `t[b][q_idx]`, not `t[b, q_idx]`."""

    __pydantic_config__ = STRICT
    kind: Literal["lookup"] = "lookup"
    table: Table
    chained: bool = False


IntExpr = Annotated[
    Index | IntConst | IntBinary | IntLookup | IntArgument, Field(discriminator="kind")
]
