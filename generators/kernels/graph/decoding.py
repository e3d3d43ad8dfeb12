"""What a graph that is called for parts of a sequence needs: extents, caches, and its problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.extents import sizes
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.state import CacheWrite
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import Extent, Scope
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program, Surround
from attnfuzz.generators.render.sizes import Size, product

CACHES: dict[str, Extent] = {"cache_k": "D", "cache_v": "Dv"}
MOST_LENGTHS = 8
"""Of a list that a compiled function is given: dynamo's limit of recompilations."""
CUDA_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes whose results are overwritten by the next call."""


def sizes_of_part(program: Program, decode: Decode, start: int, stop: int) -> dict[str, Size]:
    """The extents in the call for that part: Lq of its tokens, Lkv of what attention looks at, Lmax
    of a cache, Lpast of one that is appended to, before."""
    seen = stop if decode.reads == "written" else decode.capacity(program.shape.q_len)
    return _sizes(program, decode, stop - start, seen, start)


def sizes_of_whole(program: Program, decode: Decode) -> dict[str, Size]:
    """The extents in the reference, which is given the whole sequence."""
    return _sizes(program, decode, program.shape.q_len, program.shape.q_len, 0)


def names_of_sizes(program: Program, decode: Decode) -> dict[str, Size]:
    """The extents, with the lengths as names."""
    return _sizes(program, decode, "Lq", "Lkv", "Lpast")


def written_sizes(program: Program, decode: Decode) -> dict[str, Size]:
    """The extents as the function has them: lengths are names where calls differ in them."""
    parts = [sizes_of_part(program, decode, *part) for part in decode.parts(program.shape.q_len)]
    return {
        name: size if all(part[name] == size for part in parts) else name
        for name, size in parts[0].items()
    }


def _sizes(program: Program, decode: Decode, part: Size, seen: Size, past: Size) -> dict[str, Size]:
    capacity = decode.capacity(program.shape.q_len)
    pages = {"Lmax": capacity, "Lpast": past, "pages": capacity // decode.page}
    return {**sizes(program, program.shape.batch, part, seen), **pages}


def cache_shapes(scope: Scope, decode: Decode) -> dict[str, tuple[Size, ...]]:
    """The shapes of the caches, by name."""
    found: dict[str, tuple[Size, ...]] = {}
    for name, dim in CACHES.items():
        batch, length = scope.sizes["B"], scope.sizes["Lmax"]
        if decode.slots == "pages":
            batch, length = product((batch, scope.sizes["pages"])), decode.page
        elif not decode.allocated:
            length = scope.sizes["Lpast"]
        shape = [batch, scope.sizes["Hkv"], scope.sizes[dim]]
        shape.insert(decode.length_dim, length)
        found[name] = tuple(shape)
    return found


def every_scope(program: Program, decode: Decode) -> Iterator[dict[str, Size]]:
    """The extents in each call, in the reference and as the function is written."""
    for part in decode.parts(program.shape.q_len):
        yield sizes_of_part(program, decode, *part)
    yield sizes_of_whole(program, decode)
    yield written_sizes(program, decode)


def results(steps: Iterable[Step], decode: Decode) -> tuple[str, ...]:
    """What a graph of these steps returns after its result: what its caches are after the call, in
    their order, as far as that is given back."""
    writes = sorted((s.cache, s.to) for s in steps if isinstance(s, CacheWrite))
    return tuple(to for _, to in writes) if decode.gives_caches else ()


def problems(program: Program, graph: Graph) -> Iterator[Problem]:
    """What the decode itself, or the rest of the program, does not agree with."""
    decode, shape, compiled = graph.decode, program.shape, program.compile
    assert decode is not None
    for key, wrong in (
        ("training", program.training is not None),
        ("mask", program.mask is not None),
        ("calls", bool(program.calls)),
        ("surround", program.surround != Surround()),
        ("kernel.others", bool(graph.others)),
        ("compile.mode", compiled is not None and compiled.mode in CUDA_GRAPHS),
    ):
        if wrong:
            yield Problem(key, "expected none with a graph that decodes")
            return
    if shape.q_len != shape.kv_len:
        yield Problem("shape.kv_len", f"expected q_len ({shape.q_len}) with a graph that decodes")
    if decode.calls * decode.tokens > shape.q_len or not shape.q_len:
        yield Problem("kernel.decode.calls", f"expected at most {shape.q_len} tokens in all")
    if decode.slots == "listed" and compiled is not None:
        if compiled.via == "layers":
            yield Problem("compile.via", "expected another: each layer would append to the lists")
        if len(decode.parts(shape.q_len)) > MOST_LENGTHS:
            yield Problem("kernel.decode.calls", "expected fewer: each list is compiled for anew")
    names = ("Lq", "Lkv")
    if any({*each.rows, *each.columns} & {*names} for each in graph.parameters):
        yield Problem("kernel.parameters", "expected no length in a shape where parts differ")
    writes = [step for step in graph.body if isinstance(step, CacheWrite)]
    if not writes or len({step.cache for step in writes}) < len(writes):
        yield Problem("kernel.steps", "expected caches that are written once each")
    kept = {step.to for step in writes if decode.gives_caches}
    given = [name for step in graph.body for name in step.writes()]
    if any(given.count(name) > 1 for name in kept) or {*CACHES} & {*given}:
        yield Problem("kernel.steps", "expected no other value of the name of a cache")
    if not {step.cache for step in writes} <= {*CACHES}:
        yield Problem("kernel.steps", f"expected caches to be {' or '.join(CACHES)}")
    yield from _slots(decode)


def _slots(decode: Decode) -> Iterator[Problem]:
    plain = replace(decode, calls=1, tokens=1, cache="bhld", window=None)
    if not decode.allocated and plain != Decode(slots=decode.slots):
        yield Problem("kernel.decode.slots", "expected another: nothing is allocated or read")
    if decode.writes == "functional" and (decode.slots == "pages" or decode.reads == "written"):
        yield Problem("kernel.decode.writes", "expected in_place with pages, or reads of a part")
    if decode.slots != "pages" and decode.page != Decode().page:
        yield Problem("kernel.decode.page", "expected the default: there are no pages")
    if decode.slots == "ring" and (decode.window is None or decode.reads == "written"):
        yield Problem("kernel.decode.window", "expected one, and reads of all slots, for a ring")
    if decode.allocated and decode.reads == "written" and decode.position != "int":
        yield Problem("kernel.decode.reads", "expected all: the position is a tensor")
    if decode.unwritten == "nan" and decode.reads == "all":
        yield Problem("kernel.decode.unwritten", "expected numbers: a product with 0 reads them")
