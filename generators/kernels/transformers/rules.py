"""Which programs of transformers' attention there are."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.system_rules import without
from attnfuzz.generators.kernels.transformers.spec import Transformers
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed

DTYPES = ("float32", "bfloat16", "float16")
"""Eager attention has its softmax in float32, whatever comes in."""


def windowed(kernel: Transformers) -> bool:
    """Whether the pattern has a window."""
    return kernel.pattern not in ("causal", "bidirectional")


def forgets(kernel: Transformers) -> bool:
    """Whether its cache keeps the last keys alone, as many as the window has."""
    return kernel.cache != "none" and windowed(kernel)


def problems(p: Program, kernel: Transformers) -> Iterator[Problem]:
    """What of the program, or of its kernel's arguments, does not go together."""
    yield from without(p, "transformers")
    for name in ("q", "k", "v"):
        dtype = getattr(p, name).dtype
        if dtype not in DTYPES or dtype != p.q.dtype:
            yield Problem(f"{name}.dtype", f"expected one of {', '.join(DTYPES)}, alike for all")
    yield from _length_problems(p, kernel)
    if p.shape.head_dim % 2:
        yield Problem("shape.head_dim", "expected an even number: a Llama has rotary embeddings")
    if p.mask is not None and "h" in mask_axes(p.mask):
        yield Problem("mask", "expected one that is alike for all heads: masks are made for none")
    if kernel.softcap and kernel.implementation == "sdpa":
        yield Problem("kernel.softcap", "expected 0: sdpa has none")
    yield from _argument_problems(p, kernel)


def _length_problems(p: Program, kernel: Transformers) -> Iterator[Problem]:
    fresh = {q_len == kv_len for _, q_len, kv_len in lengths(p)}
    for key, q_len, kv_len in lengths(p):
        if not q_len:
            yield Problem(f"{key}.q_len", "expected at least 1 for transformers")
        if kernel.cache == "none" and q_len != kv_len:
            yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}) without a cache")
        if kv_len < q_len:
            yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}) or more")
    if kernel.cache != "none" and len(fresh) > 1:
        yield Problem("calls", "expected something, or nothing, in the cache before every call")


def _argument_problems(p: Program, kernel: Transformers) -> Iterator[Problem]:
    causal = kernel.pattern in ("causal", "sliding", "chunked")
    packed, cached = kernel.sequences > 1, kernel.cache != "none"
    for key, wrong, why in (
        ("block", kernel.block and not causal, "0: the mask is causal nowhere"),
        ("block", kernel.block and packed, "0 with packed sequences"),
        ("block", kernel.block and forgets(kernel), "0: the cache keeps no key before the window"),
        (
            "overlay",
            kernel.overlay == "or" and forgets(kernel),
            "and: the cache keeps no key before the window",
        ),
        ("sequences", packed and not causal, "1 without a causal pattern"),
        ("sequences", packed and kernel.padding != "none", "1 with padding"),
        ("sequences", packed and cached, "1 with a cache"),
        ("sequences", packed and p.mask is not None, "1 with a mask of the program's own"),
        ("cache", cached and not causal, "none without a causal pattern"),
        ("cache", cached and p.training is not None, "none in training"),
        ("made", kernel.made == "outside" and cached, "inside with a cache"),
        (
            "made",
            kernel.made == "outside" and p.surround.projections,
            "inside with projections: the query is not there before",
        ),
    ):
        if wrong:
            yield Problem(f"kernel.{key}", f"expected {why}")


def fitted(p: Program, kernel: Transformers) -> Transformers:
    """The kernel with what the program no longer allows set back."""
    if all(q_len == kv_len for _, q_len, kv_len in lengths(p)) and kernel.updates > 1:
        kernel = changed(kernel, updates=1)
    if kernel.cache == "none":
        kernel = changed(kernel, updates=1)
    if kernel.cache != "static":
        kernel = changed(kernel, spare=0)
    if p.mask is None or forgets(kernel):
        kernel = changed(kernel, overlay="and")
    if forgets(kernel):
        kernel = changed(kernel, block=0)
    return kernel if windowed(kernel) else changed(kernel, window=Transformers().window)
