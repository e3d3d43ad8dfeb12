"""Simpler graphs than one that decodes: without state, or with a cache that is written plainly.

As in `shrinking`, they need be neither valid nor simpler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attnfuzz.generators.kernels.graph import decoding
from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.rewiring import without
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.attention import Attend
from attnfuzz.generators.kernels.graph.steps.state import (
    Append,
    AppendToList,
    AttendWritten,
    CacheWrite,
    PositionMask,
    Store,
    StoreInPages,
)
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.steps.views import Permute


def plainer(graph: Graph, decode: Decode) -> Iterator[Graph]:
    """Without a cache; SDPA over a cache alone, of the simplest kind and then of this one; the
    steps as they are, written in place, with simpler writes, or without pages, with all that is
    stored as `[B, H, L, D]`, and with the mask of positions where there was none, or without it."""
    yield stateless(graph)
    fewer = Decode(calls=decode.calls, tokens=decode.tokens)
    ring = replace(decode, cache="bhld", spare=0, unwritten="zeros")
    for simpler in (Decode(), fewer, replace(fewer, reads="all"), ring, replace(decode, calls=0)):
        yield from alone(simpler)
    if decode.writes == "functional":
        yield _decoding(graph, graph.body, replace(decode, writes="in_place"))
    if decode.slots == "listed":
        yield with_plain_writes(graph, replace(decode, slots="appended"))
    plain = replace(fewer, cache=decode.cache, window=decode.window)
    copied = replace(plain, reads="all", writes=decode.writes)
    for position in ("int", decode.position):
        for way in dict.fromkeys((plain, replace(plain, reads="all"), copied)):
            yield with_plain_writes(graph, replace(way, position=position))
    for in_slots in without_pages(graph, decode):
        yield in_slots
        yield as_heads(in_slots)
    yield as_heads(graph)
    for i, step in enumerate(graph.body):
        if isinstance(step, AttendWritten):
            yield graph.with_steps((*graph.body[:i], *_masked(step), *graph.body[i + 1 :]))
        elif isinstance(step, Attend) and step.mask is not None:
            whole = AttendWritten(q=step.q, k=step.k, v=step.v, to=step.to, scale=step.scale)
            yield graph.with_steps((*graph.body[:i], whole, *graph.body[i + 1 :]))


def _masked(step: AttendWritten) -> tuple[Step, Step]:
    """The same of several tokens, each of which sees what is before it."""
    mask = PositionMask(like=step.q, to="mask")
    return mask, Attend(q=step.q, k=step.k, v=step.v, to=step.to, mask="mask")


def stateless(graph: Graph) -> Graph:
    """The same of a whole sequence at once, which attends to itself."""
    steps: list[Step] = []
    renamed: dict[str, str] = {}
    for step in graph.body:
        if isinstance(step, CacheWrite):
            renamed[step.to] = step.of
        elif isinstance(step, AttendWritten):
            steps.append(
                Attend(
                    q=step.q, k=renamed.get(step.k, step.k), v=renamed.get(step.v, step.v),
                    to=step.to, causal=True, scale=step.scale,
                )
            )  # fmt: skip
        elif not isinstance(step, PositionMask):
            steps.append(step.reading(renamed))
            for name in step.writes():
                renamed.pop(name, None)
    return replace(graph.with_steps(steps), decode=None, returns=graph.returns[:1])


def without_pages(graph: Graph, decode: Decode) -> Iterator[Graph]:
    """The graph with slots in order that are written as its pages are, perhaps by two tokens."""
    for tokens in dict.fromkeys((decode.tokens, 2) if decode.slots == "pages" else ()):
        slots = replace(decode, slots="in_order", page=Decode().page, tokens=tokens)
        yield in_order(graph, slots)


def as_heads(graph: Graph) -> Graph:
    """What is handed over and what is stored as `[B, H, L, D]`, without the steps that exchange
    heads and lengths, or what is of extent 1 too."""
    for i, step in reversed(list(enumerate(graph.body))):
        if isinstance(step, Permute) and step.dims[3:] == (3,):
            graph = without(graph, [i], step.to, step.of, i)
    assert graph.decode is not None
    return replace(graph, given="bhld", decode=replace(graph.decode, cache="bhld"))


def alone(decode: Decode) -> Iterator[Graph]:
    """SDPA of q, and of keys and values from caches of that kind; without a mask first."""
    writes = (_write(decode, "k", "cache_k", "keys"), _write(decode, "v", "cache_v", "values"))
    seen = AttendWritten(q="q", k="keys", v="values", to="out")
    mask = PositionMask(like="q", to="mask")
    masked = Attend(q="q", k="keys", v="values", to="out", mask="mask")
    for attention in ((seen,), (mask, masked)):
        steps = (*writes, *attention)
        returns = ("out", *decoding.results(steps, decode))
        yield Graph(steps=steps, returns=returns, decode=decode)


def with_plain_writes(graph: Graph, decode: Decode) -> Graph:
    """The graph with caches of that kind, whatever they were."""
    steps = [
        _write(decode, step.of, step.cache, step.to) if isinstance(step, CacheWrite) else step
        for step in graph.body
    ]
    return _decoding(graph, steps, decode)


def _decoding(graph: Graph, steps: Sequence[Step], decode: Decode) -> Graph:
    """`graph` with these steps, which decodes so and returns what it has to."""
    returns = (graph.returns[0], *decoding.results(steps, decode))
    return replace(graph.with_steps(steps), decode=decode, returns=returns)


def in_order(graph: Graph, decode: Decode) -> Graph:
    """The graph with caches of that kind, which have no pages, written in the same way."""
    steps: list[Step] = []
    for step in graph.body:
        if isinstance(step, StoreInPages):
            steps.append(Store(of=step.of, cache=step.cache, to=step.to, form=step.form))
        elif isinstance(step, AttendWritten) and decode.tokens > 1:
            steps += _masked(step)
        else:
            steps.append(step)
    return replace(graph.with_steps(steps), decode=decode)


def _write(decode: Decode, of: str, cache: str, to: str) -> CacheWrite:
    made: dict[str, type[CacheWrite]] = {
        "pages": StoreInPages,
        "appended": Append,
        "listed": AppendToList,
    }
    write = made.get(decode.slots, Store)(of=of, cache=cache, to=to)  # type: ignore[arg-type]
    by_slice = decode.slots == "in_order" and decode.position == "int"
    if not isinstance(write, Store) or by_slice:
        return write
    return replace(write, form="index_copy" if decode.writes == "functional" else "index_put")
