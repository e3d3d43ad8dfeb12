"""Captured tables and integer expressions."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attnfuzz.generators.model.indices import Index, IntBinary, IntConst, IntExpr, IntLookup, Table
from attnfuzz.generators.strategies.draws import Draw, weighted
from attnfuzz.generators.strategies.swarm import Swarm

AXES: tuple[tuple[int, tuple[str, ...]], ...] = (
    (4, ("kv_idx",)), (3, ("q_idx",)), (4, ("b",)), (4, ("h",)), (3, ("b", "kv_idx")),
    (2, ("b", "q_idx")), (2, ("h", "kv_idx")), (2, ("h", "q_idx")), (3, ("q_idx", "kv_idx")),
    (2, ("b", "h")), (1, ("kv_idx", "q_idx")), (2, ("h", "q_idx", "kv_idx")),
    (2, ("b", "h", "q_idx", "kv_idx")), (1, ("b", "q_idx", "kv_idx")),
)  # fmt: skip
LIMITS = (2, 1, 3, 4, 8, 16, 64, 300)
DIVISORS = (2, 3, 4, 5, 7, 8, 16, 32, 64, 100, 128, -3)
CONSTANTS = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 64, 100, 127, 128, 200, -1, -2, -16)


class Expressions:
    """Tables and integer expressions with the features of a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        has = swarm.has
        scalar = ((6, ()),) if has("table.scalar") else ()
        self.axes = weighted(*AXES, *scalar)
        self.unit = weighted((4, -1), *(((1, 0), (1, 1)) if has("table.unit") else ()))
        self.chained = weighted((2, False), *(((1, True),) if has("table.chained") else ()))
        self.int_fill = weighted(
            *((1, ("uniform", limit)) for limit in LIMITS), (2, ("arange", 2)), (1, ("zeros", 2)),
            (1, ("ones", 2)), (2, ("coin", 2)), (1, ("sorted", 4)),
        )  # fmt: skip
        self.bool_fill = weighted((8, "coin"), (1, "ones"), (1, "zeros"))
        self.float_fill = weighted(
            (6, "normal"), (2, "uniform"), (1, "arange"), (1, "zeros"), (1, "ones"), (1, "coin")
        )
        others = ((2, "bfloat16"), (2, "float16"), (1, "float64"))
        self.float_dtype = weighted((5, "float32"), *(others if has("table.dtype") else ()))
        self.int_dtype = weighted((3, "int64"), (2, "int32"))
        self.mask_dtype = weighted((4, "bool"), (1, "int64"), (1, "int32"))
        self.leaf = weighted(
            (5, Index(axis="q_idx")), (5, Index(axis="kv_idx")), (2, Index(axis="h")),
            (2, Index(axis="b")), (3, None),
        )  # fmt: skip
        self.shape_of_binary = weighted((3, "leaf"), (2, "scaled"), (2, "offset"), (2, "pair"))
        self.divide = weighted((2, "//"), (2, "%"))
        self.combine = weighted((3, "-"), (3, "+"), (1, "*"), (1, "minimum"), (1, "maximum"))
        self.adjust = weighted((2, "+"), (2, "-"), (1, "*"))
        self.divisor: SearchStrategy[int] = st.sampled_from(DIVISORS)
        self.constant: SearchStrategy[int] = st.sampled_from(CONSTANTS)

    def table(self, draw: Draw, family: str) -> Table:
        """A table of the `family` "bool" (a mask's: bool or integers), "integer" or "float"."""
        axes = draw(self.axes)
        unit = draw(self.unit) if axes else -1
        limit = 2
        if family == "float":
            dtype, fill = draw(self.float_dtype), draw(self.float_fill)
        elif family == "bool" and (dtype := draw(self.mask_dtype)) == "bool":
            fill = draw(self.bool_fill)
        else:
            dtype = dtype if family == "bool" else draw(self.int_dtype)
            fill, limit = draw(self.int_fill)
            if fill == "sorted" and not axes:
                fill = "uniform"
        return Table(
            axes=axes,
            dtype=dtype,
            init=fill,
            limit=limit,
            unit=(unit,) if 0 <= unit < len(axes) else (),
        )

    def is_chained(self, draw: Draw, table: Table) -> bool:
        """Draws whether a lookup is written `t[b][q_idx]`, which takes two axes or more."""
        return len(table.axes) > 1 and draw(self.chained)

    def integer(self, draw: Draw, depth: int = 2) -> IntExpr:
        """An integer expression with an index or a table in every operation."""
        form = draw(self.shape_of_binary) if depth else "leaf"
        if form == "leaf":
            return draw(self.leaf) or self._lookup(draw)
        left = self.integer(draw, depth - 1)
        if form == "scaled":
            op, value = draw(self.divide), draw(self.divisor)
            return IntBinary(op=op, left=left, right=IntConst(value=value))
        if form == "offset":
            op, value = draw(self.adjust), draw(self.constant)
            return IntBinary(op=op, left=left, right=IntConst(value=value))
        op = draw(self.combine)
        return IntBinary(op=op, left=left, right=self.integer(draw, depth - 1))

    def _lookup(self, draw: Draw) -> IntLookup:
        table = self.table(draw, "integer")
        return IntLookup(table=table, chained=self.is_chained(draw, table))
