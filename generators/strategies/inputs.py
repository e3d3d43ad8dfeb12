"""Inputs: how q, k and v lie in memory, their dtypes and values."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations, product
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attnfuzz.generators.model.program import BSHD, FloatDtype, Layout
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.swarm import Swarm

Triple = tuple[FloatDtype, FloatDtype, FloatDtype]

COMMON = (
    BSHD,
    Layout(order=(2, 0, 1, 3)),  # sequence first
    Layout(order=(0, 1, 3, 2)),  # keys stored transposed
    Layout(order=(0, 2, 1, 3), pad=(0, 0, 0, 8)),
    Layout(pad=(0, 0, 3, 0)),  # a slice of a longer cache
    Layout(start=(0, 0, 1, 0), pad=(0, 0, 1, 0)),
    Layout(start=(0, 0, 0, 1)),
    Layout(step=(1, 1, 2, 1)),
    Layout(expand=(0,)),
    Layout(expand=(1,)),
)
PLAIN: tuple[tuple[int, Triple], ...] = ((4, ("float32", "float32", "float32")),)
LOW: tuple[tuple[int, Triple], ...] = (
    (3, ("bfloat16", "bfloat16", "bfloat16")),
    (2, ("float16", "float16", "float16")),
)
AS_TRAINED: tuple[tuple[int, Triple], ...] = (
    (8, ("bfloat16", "bfloat16", "bfloat16")),
    (4, ("float16", "float16", "float16")),
)
DOUBLE: tuple[tuple[int, Triple], ...] = ((1, ("float64", "float64", "float64")),)
MIXED: tuple[Triple, ...] = (
    ("float16", "float32", "float32"),
    ("float32", "bfloat16", "bfloat16"),
    ("bfloat16", "float32", "float32"),
    ("float32", "float32", "bfloat16"),
    ("bfloat16", "float32", "bfloat16"),
    ("float32", "float16", "float32"),
)


def _one(dim: int, value: int, rest: int = 0) -> tuple[int, int, int, int]:
    filled = [rest] * 4
    filled[dim] = value
    return (filled[0], filled[1], filled[2], filled[3])


@cache
def layouts() -> SearchStrategy[Layout]:
    """Layouts of one tensor: contiguous, the common ones, and every order of dimensions with one
    or two of pad, start, step and expand."""
    orders: list[Any] = [*permutations(range(4))]
    changes: list[dict[str, Any]] = [{}] * 8
    changes += [{"pad": _one(dim, n)} for dim, n in product(range(4), (1, 3, 8))]
    changes += [{"start": _one(dim, n)} for dim, n in product(range(4), (1, 3))]
    changes += [{"start": _one(dim, 2), "pad": _one(dim, 5)} for dim in range(4)]
    changes += [{"step": _one(dim, n, rest=1)} for dim, n in product(range(4), (2, 3))]
    changes += [{"expand": dims} for dims in ((0,), (1,), (2,), (3,), (0, 1), (0, 1, 2))] * 3
    every = [Layout(order=order, **change) for order in orders for change in changes]
    usual = [Layout()] * (len(every) // 4) + list(COMMON) * (len(every) // 20)
    unread = [replace(one, unread="nan") for one in (*COMMON * (len(every) // 10), *every)]
    return st.sampled_from(usual + every + [one for one in unread if not one.expand and _gaps(one)])


def bshd_or_each(draw: Draw, bshd: SearchStrategy[bool]) -> list[Layout]:
    """Layouts of q, k and v: all `[B, L, H, D]` in memory, where that is drawn, or each its own."""
    return [BSHD] * 3 if draw(bshd) else [draw(layouts()) for _ in range(3)]


def _gaps(layout: Layout) -> bool:
    """Whether the storage is larger than the tensor."""
    return any((*layout.pad, *layout.start)) or max(layout.step) > 1


class Inputs:
    """Layouts, dtypes and values with the features of a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        has = swarm.has
        varied = ((3, "all_bshd"), (8, "each")) if has("input.layout") else ()
        packed = ((1, "kv"), (2, "qkv")) if has("input.packed") else ()
        self.placing: SearchStrategy[str] = weighted((5, "plain"), *varied, *packed)
        gaps = ({"pad": (0, 1, 0, 0)}, {"pad": (0, 0, 3, 0)}, {"start": (0, 1, 0, 0)})
        buffers = [Layout(unread="nan", **one) for one in gaps] if has("input.layout") else []
        self.kv_buffer: SearchStrategy[Layout] = st.sampled_from([Layout()] * 6 + buffers)
        buffers += [replace(one, order=BSHD.order) for one in buffers]
        self.q_order = st.sampled_from([Layout()] * 3 + [BSHD] * 9 + buffers)
        low = LOW if has("input.low_precision") else ()
        low += AS_TRAINED if swarm.place.as_trained else ()
        self.dtypes = weighted(*PLAIN, *low)
        self.dtypes_and_double = weighted(*PLAIN, *low, *(DOUBLE if has("input.float64") else ()))
        self.as_trained = swarm.place.as_trained
        self.keeps_float32 = one_in(16)
        self.mixed = st.sampled_from(MIXED)
        self.varied_values = has("input.values")
        self.values = {
            wide: st.sampled_from(_value_triples(wide)) for wide in (False, True)
        }  # fp16 overflows where float32 and bfloat16 do not
        self.has_not_finite = one_in(4) if self.varied_values else st.just(False)
        self.not_finite = st.sampled_from([
            *(("q", "nan"),) * 4, ("k", "nan"), ("v", "nan"), ("q", "inf"), ("k", "inf"),
            ("v", "inf"),
        ])  # fmt: skip

    def for_flex(self, draw: Draw, dtypes: Triple) -> Triple:
        """`dtypes`, but seldom float32 where attention is as trained: flex's kernels then take a
        GPU's compilers up to minutes."""
        whole: Triple = ("float32", "float32", "float32")
        if not self.as_trained or dtypes != whole or draw(self.keeps_float32):
            return dtypes
        return ("bfloat16", "bfloat16", "bfloat16")

    def draw_values(self, draw: Draw, half: bool) -> tuple[str, str, str]:
        """Which values q, k and v have; without the huge ones when any is `half` (float16)."""
        if not self.varied_values:
            return ("normal", "normal", "normal")
        return draw(self.values[not half])


def _value_triples(wide: bool) -> list[tuple[str, str, str]]:
    usual = [("normal", "normal", "normal")] * 150  # other values hide many a fault
    special = ["tiny", "large", "zeros", "ones", "one_hot", "negative", "denormal"]
    special += ["huge"] * wide
    alike = [(name, name, "normal") for name in special] + [(name,) * 3 for name in special]
    single = [("normal", "normal", name) for name in special]
    single += [(name, "normal", "normal") for name in special]
    single += [("normal", name, "normal") for name in special]
    negative = [("ones", "negative", "normal")] * 2  # no score is above zero
    return usual + alike + single + negative
