"""Score modifications: float expression trees.

Minus infinity is made at the root only, where no arithmetic can turn it into NaN. Booleans are used
only where torch does arithmetic on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from attnfuzz.generators.model.expressions import uses_score
from attnfuzz.generators.model.program import Shape
from attnfuzz.generators.model.scores import (  # fmt: skip
    Alibi,
    FloatBinary,
    FloatCall,
    FloatConst,
    FloatLookup,
    FromIndex,
    MaskedScore,
    RelativeBias,
    Repeated,
    Score,
    ScoreMod,
    Softcap,
    Truth,
    Where,
)
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.expressions import Expressions
from attnfuzz.generators.strategies.masks import Masks
from attnfuzz.generators.strategies.swarm import EVERYTHING, Swarm

ROOTS = (
    (6, "binary"), (3, "alibi"), (3, "softcap"), (3, "relative_bias"), (3, "masked"), (3, "where"),
    (3, "lookup"), (3, "call"), (2, "truth"), (1, "from_index"), (1, "repeated"),
)  # fmt: skip
INNER = (
    (3, "binary"), (1, "alibi"), (1, "softcap"), (1, "relative_bias"), (2, "where"), (3, "lookup"),
    (2, "call"), (2, "from_index"), (1, "repeated"),
)  # fmt: skip
LEAVES = ((3, "lookup"), (2, "from_index"))
CONSTANTS = (0.5, 2.0, 1.0, -1.0, 0.0, 0.1, -0.25, 3.0, 0.001, 20.0)
DIVISORS = (2.0, 0.5, -4.0, 3.0, 10.0, 100.0)
FUNCTIONS = ("tanh", "sigmoid", "sin", "cos", "abs", "neg", "relu", "square")


class Scores:
    """Score modifications with the features of a swarm."""

    def __init__(self, swarm: Swarm, masks: Masks | None = None) -> None:
        self.masks = masks or Masks(swarm)
        self.expressions: Expressions = self.masks.expressions

        def enabled(choices: tuple[tuple[int, str], ...]) -> list[tuple[int, str]]:
            return [(weight, kind) for weight, kind in choices if swarm.has(f"score.{kind}")]

        self.root: SearchStrategy[str] = weighted((1, "score"), *enabled(ROOTS))
        self.inner: SearchStrategy[str] = weighted((8, "score"), *enabled(INNER))
        self.leaf: SearchStrategy[str] = weighted((8, "score"), *enabled(LEAVES))
        constants = ((2, "const"),) if swarm.has("score.float") else ()
        truths = ((1, "truth"),) if swarm.has("score.truth") else ()
        self.operand = weighted((4, "tree"), *constants, *truths)
        self.branch = weighted((3, "tree"), *constants)
        self.constant = st.sampled_from(CONSTANTS)
        self.divisor = st.sampled_from(DIVISORS)
        self.op = weighted((4, "+"), (3, "*"), (3, "-"), (2, "/"), (1, "minimum"), (1, "maximum"))
        self.function: SearchStrategy[Any] = st.sampled_from(FUNCTIONS)
        self.step: SearchStrategy[Any] = st.sampled_from(("swish", "softsign"))
        # What more steps cost can double with each, and minutes are soon spent.
        self.times = weighted((6, 1), (6, 2), (6, 3), (6, 4), (3, 6), (1, 8), (1, 10), (1, 12))
        self.cap = st.sampled_from((20.0, 1.0, 0.5, 5.0, 50.0, 100.0))
        self.flag = st.booleans()
        self.bias_dtype = weighted((3, "float32"), (1, "float16"), (1, "bfloat16"))
        self.makers: dict[str, Callable[[Draw, Shape, int, bool], ScoreMod]] = {
            "score": lambda draw, shape, depth, learn: Score(),
            "binary": self._binary,
            "call": self._call,
            "repeated": self._repeated,
            "where": self._where,
            "lookup": self._lookup,
            "from_index": self._from_index,
            "alibi": self._alibi,
            "softcap": self._softcap,
            "relative_bias": self._relative_bias,
            "masked": self._masked,
            "truth": self._truth,
        }

    def draw(self, draw: Draw, shape: Shape, learnable: bool = False) -> ScoreMod:
        """A score modification for `shape`; `learnable`: its tables may require gradients."""
        return self.makers[draw(self.root)](draw, shape, 2, learnable)

    def learned(self, draw: Draw, shape: Shape) -> ScoreMod:
        """A score, modified or not, and a table that has a gradient."""
        inner = self._tree(draw, shape, 1, False)
        if not uses_score(inner):
            inner = Score()
        table = self.expressions.table(draw, "float")
        # Its gradient is added up in its dtype, one score by one.
        table = replace(table, axes=table.axes or ("h",), dtype="float32")
        chained = self.expressions.is_chained(draw, table)
        bias = FloatLookup(table=table, chained=chained, requires_grad=True)
        return FloatBinary(op="+" if draw(self.flag) else "*", left=inner, right=bias)

    def _tree(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        kind = draw(self.inner if depth else self.leaf)
        return self.makers[kind](draw, shape, depth, learn)

    def _binary(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        op = draw(self.op)
        left = self._tree(draw, shape, depth - 1, learn)
        if op == "/":
            return FloatBinary(op="/", left=left, right=FloatConst(value=draw(self.divisor)))
        right = draw(self.operand)
        if right == "const" and op not in ("minimum", "maximum"):
            return FloatBinary(op=op, left=left, right=FloatConst(value=draw(self.constant)))
        if right == "truth" and op in ("+", "*"):
            truth = self._truth(draw, shape, 0, learn)
            return FloatBinary(op=op, left=left, right=truth)
        other = self._tree(draw, shape, depth - 1, learn)
        return FloatBinary(op=op, left=left, right=other)

    def _call(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        function = draw(self.function)
        return FloatCall(function=function, inner=self._tree(draw, shape, depth - 1, learn))

    def _repeated(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        inner = self._tree(draw, shape, depth - 1, learn)
        return Repeated(step=draw(self.step), times=draw(self.times), inner=inner)

    def _where(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        condition = self.masks.draw(draw, shape, 0)
        then = self._tree(draw, shape, depth - 1, learn)
        kind = draw(self.branch)
        if kind == "const":
            return Where(
                condition=condition, then=then, otherwise=FloatConst(value=draw(self.constant))
            )
        return Where(
            condition=condition, then=then, otherwise=self._tree(draw, shape, depth - 1, learn)
        )

    def _lookup(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        table = self.expressions.table(draw, "float")
        chained = self.expressions.is_chained(draw, table)
        gradient = learn and draw(self.flag)
        return FloatLookup(table=table, chained=chained, requires_grad=gradient)

    def _from_index(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        return FromIndex(index=self.expressions.integer(draw, 1))

    def _alibi(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        inner = self._tree(draw, shape, depth - 1, learn)
        return Alibi(inner=inner, captured=not draw(self.flag))

    def _softcap(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        inner = self._tree(draw, shape, depth - 1, learn)
        return Softcap(inner=inner, cap=draw(self.cap))

    def _relative_bias(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        inner = self._tree(draw, shape, depth - 1, learn)
        return RelativeBias(inner=inner, per_head=draw(self.flag), dtype=draw(self.bias_dtype))

    def _masked(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        mask = self.masks.draw(draw, shape, 1)
        return MaskedScore(mask=mask, inner=self._tree(draw, shape, depth - 1, learn))

    def _truth(self, draw: Draw, shape: Shape, depth: int, learn: bool) -> ScoreMod:
        return Truth(mask=self.masks.draw(draw, shape, 0), integer=draw(one_in(3)))


@st.composite
def _score_mods(draw: DrawFn, parts: Scores, shape: Shape) -> ScoreMod:
    return parts.draw(draw, shape)


def score_mods(swarm: Swarm = EVERYTHING, shape: Shape | None = None) -> SearchStrategy[ScoreMod]:
    """Score modifications of the kinds that `swarm` enables; constants go by `shape`."""
    return _score_mods(Scores(swarm), shape or Shape())
