"""Masks: trees over the field's families, with constants that meet the lengths they are used at."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from attnfuzz.generators.model.masks import (  # fmt: skip
    AllFalse,
    AllTrue,
    And,
    BlockMap,
    Causal,
    Compare,
    Documents,
    GlobalLocal,
    KeyPadding,
    Mask,
    Natten,
    Not,
    Or,
    PrefixLM,
    Single,
    SlidingWindow,
    TableMask,
    Tree,
)
from attnfuzz.generators.model.program import Shape
from attnfuzz.generators.strategies.draws import Draw, weighted
from attnfuzz.generators.strategies.expressions import Expressions
from attnfuzz.generators.strategies.swarm import EVERYTHING, Swarm

LEAVES = (
    (6, "causal"), (4, "sliding_window"), (3, "prefix_lm"), (4, "documents"), (2, "global_local"),
    (3, "block_map"), (1, "tree"), (2, "natten"), (3, "key_padding"), (4, "table"), (1, "single"),
    (1, "all_true"), (1, "all_false"), (5, "compare"),
)  # fmt: skip
JOINTS = ((7, "and"), (6, "or"), (3, "not"))
BOTTOM_RIGHT = "bottom right"
OFFSETS: tuple[int | str, ...] = (
    0, 0, 0, 0, 0, 0, BOTTOM_RIGHT, BOTTOM_RIGHT, BOTTOM_RIGHT, 1, -1, 3, -5, 16, -16, 64, -128,
)  # fmt: skip
WINDOWS = (4, 0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 256)
SIZES = (1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 50, 64, 100, 128, 200)


class Masks:
    """Masks with the features of a swarm."""

    def __init__(self, swarm: Swarm, expressions: Expressions | None = None) -> None:
        self.expressions = expressions or Expressions(swarm)
        leaves = [(weight, kind) for weight, kind in LEAVES if swarm.has(f"mask.{kind}")]
        leaves = leaves or [(1, "causal")]
        joints = [(weight, kind) for weight, kind in JOINTS if swarm.has(f"mask.{kind}")]
        self.leaf: SearchStrategy[str] = weighted(*leaves)
        share = max(1, sum(weight for weight, _ in leaves) // 20)
        self.any: SearchStrategy[str] = weighted(
            *leaves, *((weight * share, kind) for weight, kind in joints)
        )
        self.offset = st.sampled_from(OFFSETS)
        self.window = st.sampled_from(WINDOWS)
        self.size = st.sampled_from(SIZES)
        self.flag = st.booleans()
        self.dilation = weighted((4, 1), (2, 2), (1, 3), (1, 16))
        self.count = st.sampled_from((2, 1, 3, 5, 8, 20))
        self.prefix = weighted((5, 0), (1, 1), (1, 5), (1, 16))
        self.int_dtype = weighted((2, "int64"), (1, "int32"))
        self.block = st.sampled_from((16, 1, 4, 8, 32, 64, 128))
        self.branching = weighted((3, 2), (1, 3), (1, 4))
        self.width = st.sampled_from((4, 1, 2, 3, 5, 8, 16))
        self.radius = st.sampled_from((1, 0, 2, 3, 7))
        self.axis = weighted((1, "q_idx"), (1, "kv_idx"))
        self.at = weighted((3, "first"), (3, "last"), (2, "some"), (1, "outside"))
        self.op = weighted((3, ">="), (2, "<="), (2, "<"), (2, ">"), (2, "=="), (1, "!="))
        self.makers: dict[str, Callable[[Draw, Shape, int], Mask]] = {
            "all_true": lambda draw, shape, depth: AllTrue(),
            "all_false": lambda draw, shape, depth: AllFalse(),
            "causal": self._causal,
            "sliding_window": self._sliding_window,
            "prefix_lm": self._prefix_lm,
            "documents": self._documents,
            "global_local": self._global_local,
            "block_map": self._block_map,
            "tree": lambda draw, shape, depth: Tree(branching=draw(self.branching)),
            "natten": self._natten,
            "key_padding": lambda draw, shape, depth: KeyPadding(per_batch=not draw(self.flag)),
            "table": self._table,
            "single": self._single,
            "compare": self._compare,
            "and": self._and,
            "or": self._or,
            "not": lambda draw, shape, depth: Not(inner=self.draw(draw, shape, depth - 1)),
        }

    def draw(self, draw: Draw, shape: Shape, depth: int = 2) -> Mask:
        """A mask for `shape`, at most `depth` joints deep."""
        kind = draw(self.any if depth else self.leaf)
        return self.makers[kind](draw, shape, depth)

    def _causal(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        offset = draw(self.offset)
        return Causal(offset=offset if isinstance(offset, int) else shape.kv_len - shape.q_len)

    def _sliding_window(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        window, causal = draw(self.window), not draw(self.flag)
        return SlidingWindow(window=window, causal=causal, dilation=draw(self.dilation))

    def _prefix_lm(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        return PrefixLM(prefix=draw(self.size), per_batch=draw(self.flag))

    def _documents(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        return Documents(
            count=draw(self.count),
            per_batch=draw(self.flag),
            causal=draw(self.flag),
            shared_prefix=draw(self.prefix),
            dtype=draw(self.int_dtype),
        )

    def _global_local(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        return GlobalLocal(tokens=draw(self.size), window=draw(self.window))

    def _block_map(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        return BlockMap(block=draw(self.block), per_head=draw(self.flag))

    def _natten(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        return Natten(width=draw(self.width), radius=draw(self.radius))

    def _table(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        table = self.expressions.table(draw, "bool")
        return TableMask(table=table, chained=self.expressions.is_chained(draw, table))

    def _single(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        axis = draw(self.axis)
        length = shape.q_len if axis == "q_idx" else shape.kv_len
        where = draw(self.at)
        at = {"first": 0, "last": max(0, length - 1), "outside": length}.get(where)
        return Single(axis=axis, at=draw(self.size) if at is None else at)

    def _compare(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        op = draw(self.op)
        left = self.expressions.integer(draw)
        return Compare(op=op, left=left, right=self.expressions.integer(draw, 1))

    def _and(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        left = self.draw(draw, shape, depth - 1)
        return And(left=left, right=self.draw(draw, shape, depth - 1))

    def _or(self, draw: Draw, shape: Shape, depth: int) -> Mask:
        left = self.draw(draw, shape, depth - 1)
        return Or(left=left, right=self.draw(draw, shape, depth - 1))


@st.composite
def _masks(draw: DrawFn, parts: Masks, shape: Shape) -> Mask:
    return parts.draw(draw, shape)


def masks(swarm: Swarm = EVERYTHING, shape: Shape | None = None) -> SearchStrategy[Mask]:
    """Masks of every family that `swarm` enables; `shape` gives constants their scale."""
    return _masks(Masks(swarm), shape or Shape())
