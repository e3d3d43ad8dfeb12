"""Masks: which (b, h, q_idx, kv_idx) may attend. Expression trees over the field's mask families.

Families and their parameters follow the literature and FlexAttention's public examples. Each node
means one boolean expression over the four indices; `generators.render.masks` writes it down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.model.indices import STRICT, IntExpr, Table

Length = Annotated[int, Field(ge=1, le=4096)]
Offset = Annotated[int, Field(ge=-4096, le=4096)]
CompareOp = Literal["<", "<=", ">", ">=", "==", "!="]


@dataclass(frozen=True, kw_only=True)
class AllTrue:
    """Everything attends: `q_idx >= 0`."""

    __pydantic_config__ = STRICT
    kind: Literal["all_true"] = "all_true"


@dataclass(frozen=True, kw_only=True)
class AllFalse:
    """Nothing attends: `q_idx < 0`; every row is fully masked."""

    __pydantic_config__ = STRICT
    kind: Literal["all_false"] = "all_false"


@dataclass(frozen=True, kw_only=True)
class Causal:
    """`q_idx + offset >= kv_idx`."""

    __pydantic_config__ = STRICT
    kind: Literal["causal"] = "causal"
    offset: Offset = 0


@dataclass(frozen=True, kw_only=True)
class SlidingWindow:
    """`|q_idx - kv_idx| <= window`, or with `causal` `0 <= q_idx - kv_idx <= window`; with
    `dilation` d > 1 also `(q_idx - kv_idx) % d == 0`."""

    __pydantic_config__ = STRICT
    kind: Literal["sliding_window"] = "sliding_window"
    window: Annotated[int, Field(ge=0, le=4096)]
    causal: bool = True
    dilation: Length = 1


@dataclass(frozen=True, kw_only=True)
class PrefixLM:
    """`(kv_idx < prefix) | (q_idx >= kv_idx)`; with `per_batch` the prefix is a captured int table
    `[B]`, uniform in `[0, prefix)`."""

    __pydantic_config__ = STRICT
    kind: Literal["prefix_lm"] = "prefix_lm"
    prefix: Length
    per_batch: bool = False


@dataclass(frozen=True, kw_only=True)
class Documents:
    """Packed documents: `doc[q_idx] == doc[kv_idx]` over sorted ids `[max(Lq, Lkv)]` (or
    `[B, max(Lq, Lkv)]` with `per_batch`); with `causal` also `q_idx >= kv_idx`; with
    `shared_prefix` > 0 also everything with `kv_idx < shared_prefix` is seen."""

    __pydantic_config__ = STRICT
    kind: Literal["documents"] = "documents"
    count: Annotated[int, Field(ge=1, le=64)] = 2
    per_batch: bool = False
    causal: bool = False
    shared_prefix: Annotated[int, Field(ge=0, le=4096)] = 0
    dtype: Literal["int32", "int64"] = "int64"


@dataclass(frozen=True, kw_only=True)
class GlobalLocal:
    """`(kv_idx < tokens) | (q_idx < tokens) | (|q_idx - kv_idx| <= window)`."""

    __pydantic_config__ = STRICT
    kind: Literal["global_local"] = "global_local"
    tokens: Length = 1
    window: Annotated[int, Field(ge=0, le=4096)] = 4


@dataclass(frozen=True, kw_only=True)
class BlockMap:
    """Block-sparse map: a captured bool table `[(H,) ceil(Lq / block), ceil(Lkv / block)]`
    indexed `[(h,) q_idx // block, kv_idx // block]`."""

    __pydantic_config__ = STRICT
    kind: Literal["block_map"] = "block_map"
    block: Length = 16
    per_head: bool = False


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Ancestors in a token tree: token i's parent is `(i - 1) // branching` and a token sees
    itself and its ancestors, through captured int tables `enter` and `leave` of
    `[max(Lq, Lkv)]`: `(enter[kv_idx] <= enter[q_idx]) & (leave[q_idx] <= leave[kv_idx])`."""

    __pydantic_config__ = STRICT
    kind: Literal["tree"] = "tree"
    branching: Annotated[int, Field(ge=2, le=8)] = 2


@dataclass(frozen=True, kw_only=True)
class Natten:
    """2-D neighbourhood attention on a canvas `width` wide: rows and columns (`// width`,
    `% width`) of q and kv differ by at most `radius`."""

    __pydantic_config__ = STRICT
    kind: Literal["natten"] = "natten"
    width: Length = 4
    radius: Annotated[int, Field(ge=0, le=64)] = 1


@dataclass(frozen=True, kw_only=True)
class KeyPadding:
    """`kv_idx < length`, `length` a captured int table `[B]` (or 0-d when not `per_batch`),
    uniform in `[0, Lkv]`."""

    __pydantic_config__ = STRICT
    kind: Literal["key_padding"] = "key_padding"
    per_batch: bool = True


@dataclass(frozen=True, kw_only=True)
class TableMask:
    """A captured bool (or integer, compared `!= 0`) table looked up at the indices of its axes:
    random masks, one per batch or head, 0-d switches, unit dimensions."""

    __pydantic_config__ = STRICT
    kind: Literal["table"] = "table"
    table: Table
    chained: bool = False


@dataclass(frozen=True, kw_only=True)
class Single:
    """Only one row (`q_idx == at`) or one column (`kv_idx == at`) attends."""

    __pydantic_config__ = STRICT
    kind: Literal["single"] = "single"
    axis: Literal["q_idx", "kv_idx"]
    at: Annotated[int, Field(ge=0, le=4096)] = 0


@dataclass(frozen=True, kw_only=True)
class Compare:
    """`left op right` over integer expressions."""

    __pydantic_config__ = STRICT
    kind: Literal["compare"] = "compare"
    op: CompareOp
    left: IntExpr
    right: IntExpr


@dataclass(frozen=True, kw_only=True)
class And:
    """What both masks let attend: `left & right`."""

    __pydantic_config__ = STRICT
    kind: Literal["and"] = "and"
    left: Mask
    right: Mask


@dataclass(frozen=True, kw_only=True)
class Or:
    """What either mask lets attend: `left | right`."""

    __pydantic_config__ = STRICT
    kind: Literal["or"] = "or"
    left: Mask
    right: Mask


@dataclass(frozen=True, kw_only=True)
class Not:
    """What the inner mask does not let attend: `~inner`."""

    __pydantic_config__ = STRICT
    kind: Literal["not"] = "not"
    inner: Mask


Mask = Annotated[
    AllTrue | AllFalse | Causal | SlidingWindow | PrefixLM | Documents | GlobalLocal | BlockMap
    | Tree | Natten | KeyPadding | TableMask | Single | Compare | And | Or | Not,
    Field(discriminator="kind"),
]  # fmt: skip


def every_row_sees(mask: Mask | None) -> bool:
    """Whether it is told by the mask alone, whatever the lengths, that each query sees a key."""
    return isinstance(mask, Causal) and mask.offset >= 0
