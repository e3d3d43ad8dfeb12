"""Attention written by hand, as one call of SDPA: simpler where what matters is around it.

As in `shrinking`, what comes out need be neither valid nor simpler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from attnfuzz.generators.kernels.graph.rewiring import Given, given, history
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.attention import (
    Attend,
    Einsum,
    MaskScores,
    Product,
    Softmax,
)
from attnfuzz.generators.kernels.graph.steps.state import PositionMask
from attnfuzz.generators.kernels.graph.values import Scope
from attnfuzz.generators.render.sizes import Size, product


class Written(NamedTuple):
    """What an attention was written of: `left` and `right` of the product that gave the scores,
    that of the queries first, and the masks that these had since."""

    left: Given
    right: Given
    masks: tuple[Given, ...]


def fused(graph: Graph, before: Sequence[Scope]) -> Iterator[Graph]:
    """Each softmax, with the products before and after it, as SDPA of what they were made of:
    without a mask, and with each that its scores had. `before` has the scope of every step."""
    for at, step in enumerate(graph.body):
        if isinstance(step, Softmax):
            yield from _Attention(graph, before, at, step).fused()


class _Attention:
    """The attention whose softmax is step `at`."""

    def __init__(self, graph: Graph, before: Sequence[Scope], at: int, softmax: Softmax) -> None:
        self._graph, self._body, self._before = graph, graph.body, before
        self._at, self._softmax = at, softmax

    def fused(self) -> Iterator[Graph]:
        written = self._written()
        if written is None:
            return
        calls = [call for lead in self._leads() for call in self._calls(written, *lead)]
        for end, call in dict.fromkeys(calls):
            yield from self._with(end, call, written.masks)

    def _leads(self) -> Iterator[tuple[tuple[Size, ...], tuple[Size, ...]]]:
        """The dimensions before the last two that queries, and keys and values, may have."""
        batch, heads, kv_heads = (self._before[0].size(one) for one in ("B", "Hq", "Hkv"))
        yield (batch, heads), (batch, kv_heads)
        yield (batch, heads), (batch, heads)
        yield (product((batch, heads)),), (product((batch, heads)),)

    def _calls(
        self, written: Written, queries: tuple[Size, ...], keys: tuple[Size, ...]
    ) -> Iterator[tuple[int, Attend]]:
        """Calls of SDPA, and in which step's place each may stand: of the values farthest back that
        have the shapes for it, and of the nearest."""
        length, kv_length, dim, v_dim = (
            self._before[0].size(one) for one in ("Lq", "Lkv", "D", "Dv")
        )
        found = self._end((*queries, length, v_dim))
        if found is None:
            return
        end, to, values = found
        qs = self._operands(written.left, end, (*queries, length, dim))
        ks = self._operands(written.right, end, (*keys, kv_length, dim))
        vs = self._operands(values, end, (*keys, kv_length, v_dim))
        if qs and ks and vs:
            for which in (-1, 0):
                yield end, Attend(q=qs[which], k=ks[which], v=vs[which], to=to)

    def _with(self, end: int, call: Attend, masks: Sequence[Given]) -> Iterator[Graph]:
        """The graph with that call, for each mask."""
        before, after = self._body[:end], self._body[end + 1 :]
        made = [one for mask in masks for one in history(self._body, mask)]
        there = (one.name for one in made if self._lives(one, end))
        for mask in dict.fromkeys((None, *there)):
            yield self._graph.with_steps((*before, replace(call, mask=mask), *after))
        if self._graph.decode is not None:
            positions = PositionMask(like=call.q, to="mask")
            masked = replace(call, mask=positions.to)
            yield self._graph.with_steps((*before, positions, masked, *after))

    def _written(self) -> Written | None:
        masks: list[Given] = []
        for _, by in history(self._body, given(self._body, self._softmax.of, self._at)):
            if by is None:
                return None
            step = self._body[by]
            if isinstance(step, MaskScores):
                masks.append(given(self._body, step.mask, by))
            elif isinstance(step, Product | Einsum):
                sides = given(self._body, step.left, by), given(self._body, step.right, by)
                rank = self._before[self._at].values[self._softmax.of].rank
                over_rows = self._softmax.dim < rank - 1
                left, right = reversed(sides) if over_rows else sides
                return Written(left, right, tuple(masks))
        return None

    def _end(self, shape: tuple[Size, ...]) -> tuple[int, str, Given] | None:
        """The first step after which there is a result of that shape, its name, and what the
        probabilities were multiplied with; that product itself, where there is none."""
        now, values, product_itself = self._softmax.to, None, None
        for place, step in enumerate(self._body[self._at + 1 :], self._at + 1):
            if step.reads()[:1] != (now,):
                continue
            if values is None and isinstance(step, Product | Einsum):
                values = given(self._body, step.right, place)
                product_itself = place, step.to, values
            now = step.writes()[0]
            if values is not None and self._is(Given(now, place), shape):
                return place, now, values
        return product_itself

    def _operands(self, of: Given, end: int, shape: tuple[Size, ...]) -> list[str]:
        """The values that `of` was made of, the nearest first, that have that shape and can be read
        at step `end`."""
        found = (one for one in history(self._body, of) if self._is(one, shape))
        return [one.name for one in found if self._lives(one, end)]

    def _lives(self, value: Given, end: int) -> bool:
        """Whether step `end` can read it by its name."""
        return given(self._body, value.name, end) == value

    def _is(self, value: Given, shape: tuple[Size, ...]) -> bool:
        has = self._before[0 if value.by is None else value.by + 1].values.get(value.name)
        return has is not None and has.shape == shape
