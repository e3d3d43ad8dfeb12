"""Attention written by hand, as one call of SDPA: simpler where what matters is around it.

As in `shrinking`, what comes out need be neither valid nor simpler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attnfuzz.generators.kernels.graph.rewiring import last_writer
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


class Given(NamedTuple):
    """A value by its name, and which step gave it; None of an argument."""

    name: str
    by: int | None


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
        self._graph, self._before, self._at, self._softmax = graph, before, at, softmax

    def fused(self) -> Iterator[Graph]:
        written = self._written()
        if written is None:
            return
        for queries, keys in self._leads():
            for end, call in self._calls(written, queries, keys):
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
        body = self._graph.body
        there = [one.name for mask in masks for one in self._history(mask) if self._lives(one, end)]
        for mask in dict.fromkeys((None, *there)):
            masked = Attend(q=call.q, k=call.k, v=call.v, to=call.to, mask=mask)
            yield self._graph.with_steps((*body[:end], masked, *body[end + 1 :]))
        if self._graph.decode is not None:
            positions = PositionMask(like=call.q, to="mask")
            masked = Attend(q=call.q, k=call.k, v=call.v, to=call.to, mask="mask")
            yield self._graph.with_steps((*body[:end], positions, masked, *body[end + 1 :]))

    def _written(self) -> Written | None:
        body, masks = self._graph.body, list[Given]()
        for _, by in self._history(self._given(self._softmax.of, self._at)):
            step = body[by] if by is not None else None
            if by is not None and isinstance(step, MaskScores):
                masks.append(self._given(step.mask, by))
            elif by is not None and isinstance(step, Product | Einsum):
                sides = self._given(step.left, by), self._given(step.right, by)
                rank = self._before[self._at].values[self._softmax.of].rank
                over_rows = self._softmax.dim < rank - 1
                left, right = reversed(sides) if over_rows else sides
                return Written(left, right, tuple(masks))
        return None

    def _end(self, shape: tuple[Size, ...]) -> tuple[int, str, Given] | None:
        """The first step after which there is a result of that shape, its name, and what the
        probabilities were multiplied with; that product itself, where there is none."""
        now, values, product_itself = self._softmax.to, None, None
        for place, step in enumerate(self._graph.body[self._at + 1 :], self._at + 1):
            if step.reads()[:1] != (now,):
                continue
            if values is None and isinstance(step, Product | Einsum):
                values = self._given(step.right, place)
                product_itself = place, step.to, values
            now = step.writes()[0]
            if values is not None and self._is(Given(now, place), shape):
                return place, now, values
        return product_itself

    def _operands(self, of: Given, end: int, shape: tuple[Size, ...]) -> list[str]:
        """The values that `of` was made of, the nearest first, that have that shape and can be read
        at step `end`."""
        found = (one for one in self._history(of) if self._is(one, shape))
        return [one.name for one in found if self._lives(one, end)]

    def _given(self, name: str, at: int) -> Given:
        """The value that step `at` reads by that name."""
        return Given(name, last_writer(self._graph.body, name, at))

    def _history(self, value: Given) -> Iterator[Given]:
        """The value, and what it was made of by first operands."""
        yield value
        while value.by is not None and (read := self._graph.body[value.by].reads()):
            value = self._given(read[0], value.by)
            yield value

    def _lives(self, value: Given, end: int) -> bool:
        return self._given(value.name, end) == value

    def _is(self, value: Given, shape: tuple[Size, ...]) -> bool:
        has = self._before[0 if value.by is None else value.by + 1].values.get(value.name)
        return has is not None and has.shape == shape
