"""Programs that call the flash_attn package."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from attnfuzz.generators.kernels.flash_attn.spec import FlashAttn, KVCache
from attnfuzz.generators.model.program import Call, Input, Program, Shape
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.inputs import bshd_or_each
from attnfuzz.generators.strategies.kernel import SCALES, Parts

LONGEST = 300
"""Lq and Lkv at most: on a CPU the kernels are interpreted."""

WINDOWS = ((-1, -1),) * 12 + ((0, 0), (3, 0), (16, 0), (64, -1), (-1, 8), (5, 7), (128, 128))


class Drawing(kernel.Drawing):
    """What runs on a CPU, in float16. ALiBi is left out, as the Triton back-end asserts that its
    slopes are CUDA tensors; and caches are not compiled, as their kernels have no operator around
    them: dynamo would trace the interpreter."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.function = weighted(
            (6, "func"), (2, "kvpacked"), (2, "qkvpacked"), (4, "varlen"), (3, "kvcache")
        )
        self.causal = one_in(2)
        self.scale = st.sampled_from(SCALES[:16])
        self.window = st.sampled_from(WINDOWS)
        self.softcap = weighted((12, 0.0), (1, 2.0), (1, 30.0))
        self.deterministic = one_in(6)
        self.sequences = weighted((2, 1), (3, 2), (2, 3), (1, 5))
        self.cache = weighted((2, "whole"), (2, "append"), (3, "ragged"), (1, "paged"))
        self.appended = weighted((3, 1), (1, 2), (1, 16))
        self.bshd = one_in(2)

    def draw(self, draw: Draw, backend: str) -> Program:
        function = draw(self.function)
        shape = self._shape(draw, function)
        cache = self._cache(draw, shape) if function == "kvcache" else KVCache()
        if cache.page_size:
            shape = replace(shape, kv_len=cache.page_size)
        training = None
        if function != "kvcache" and draw(self.running.trains):
            training = self.running.training(draw, False)
        compiled = self.running.compile(draw, "none" if function == "kvcache" else backend)
        static = compiled is not None and compiled.dynamic is False
        square = function == "qkvpacked" or shape.q_len == shape.kv_len
        calls = self.running.further_calls(draw, shape, square, static)
        layout = bshd_or_each(draw, self.bshd)
        q, k, v = (Input(dtype="float16", layout=each) for each in layout)
        surround = self.running.draw_surround(draw, shape, alone=True, moved=False)
        return Program(
            kernel=FlashAttn(
                function=function,
                scale=draw(self.scale),
                causal=draw(self.causal),
                window=draw(self.window),
                softcap=draw(self.softcap),
                deterministic=training is not None and draw(self.deterministic),
                sequences=draw(self.sequences) if function == "varlen" else 1,
                cache=cache,
            ),
            shape=shape,
            q=q,
            k=k,
            v=v,
            surround=surround,
            compile=compiled,
            calls=tuple(_short(call, function, cache) for call in calls),
            training=training,
            dirty_memory=draw(self.running.dirty),
        )

    def _shape(self, draw: Draw, function: str) -> Shape:
        shape = replace(self.shapes.draw(draw), v_head_dim=None)
        q_len, kv_len = min(shape.q_len, LONGEST), min(shape.kv_len, LONGEST)
        if function == "qkvpacked":
            shape = replace(shape, kv_heads=shape.q_heads)
            q_len = kv_len
        batch = 1 if function == "varlen" else min(shape.batch, 2)
        return replace(shape, batch=batch, q_len=q_len, kv_len=kv_len)

    def _cache(self, draw: Draw, shape: Shape) -> KVCache:
        which = draw(self.cache)
        if which == "append":
            return KVCache(append=min(draw(self.appended), shape.kv_len))
        return KVCache(ragged=which == "ragged", page_size=256 if which == "paged" else 0)


def _short(call: Call, function: str, cache: KVCache) -> Call:
    """The call within what its function takes."""
    q_len, kv_len = min(call.q_len, LONGEST), min(call.kv_len, LONGEST)
    kv_len = cache.page_size or max(kv_len, cache.append)
    batch = 1 if function == "varlen" else min(call.batch, 2)
    return replace(call, batch=batch, q_len=q_len, kv_len=kv_len)
