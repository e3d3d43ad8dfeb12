"""Programs of attention-gym's masks and score modifications."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.attention_gym.spec import AttentionGym
from attnfuzz.generators.model.program import Input, Program
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Parts
from attnfuzz.generators.strategies.placing import placed

LONGEST = 400
WINDOWS = (3, 1, 2, 4, 5, 8, 16, 31, 64, 128, 200)
CANVASES = ((4, 4), (8, 8), (16, 16), (8, 4), (4, 8), (16, 8), (5, 7), (12, 20))
"""Widths and heights."""


class Drawing(kernel.Drawing):
    """Self-attention forward, in one call."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.mask: Any = weighted(
            (5, "causal"), (2, "sliding_window"), (2, "prefix_lm"), (2, "dilated"),
            (2, "global_window"), (2, "natten"),
        )  # fmt: skip
        self.window, self.canvas = st.sampled_from(WINDOWS), st.sampled_from(CANVASES)
        self.within: Any = weighted((4, "all"), (2, "documents"), (2, "packed"), (2, "batches"))
        self.sequences = weighted((2, 2), (1, 1), (2, 3), (1, 5), (1, 8))
        self.fast = one_in(2)
        self.score: Any = weighted((4, "none"), (2, "alibi"), (2, "softcap"))
        self.block_size: Any = weighted((6, 128), (1, 16), (1, 32), (1, 64))
        self.has_mask = one_in(4)
        self.scale = kernel.scales(parts.swarm)

    def draw(self, draw: Draw, backend: str) -> Program:
        shape = self.shapes.draw(draw)
        spec = self._spec(draw)
        length = max(1, min(shape.kv_len, LONGEST))
        if spec.mask == "natten":
            wide, high = draw(self.canvas)
            length = wide * high
            window = min(spec.window | 1, (min(wide, high) - 1) | 1)
            spec = replace(spec, canvas=wide, window=window)
        shape = self.shapes.for_flex(replace(shape, q_len=length, kv_len=length))
        shape = replace(shape, q_len=length, kv_len=length)
        alone = spec.mask != "natten" and not spec.fast
        mask = self.masks.draw(draw, shape) if alone and draw(self.has_mask) else None
        dtype: Any = draw(self.inputs.dtypes)[0]
        lie = placed(draw, self.inputs, shape, (dtype, dtype, dtype))
        q, k, v = (Input(dtype=dtype, layout=layout) for layout in lie.layouts)
        return Program(
            kernel=spec,
            shape=shape,
            q=q, k=k, v=v,
            packed=lie.packed,
            mask=mask,
            compile=self.running.compile(draw, backend),
            dirty_memory=draw(self.running.dirty),
        )  # fmt: skip

    def _spec(self, draw: Draw) -> AttentionGym:
        mask, within = draw(self.mask), draw(self.within)
        if mask == "natten" or (within == "packed" and mask != "causal"):
            within = "all"
        plain = AttentionGym()
        return AttentionGym(
            mask=mask,
            within=within,
            window=draw(self.window) if mask != "causal" or within == "batches" else plain.window,
            sequences=draw(self.sequences) if within in ("documents", "packed") else 2,
            fast=mask == "causal" and within == "all" and draw(self.fast),
            score=draw(self.score),
            block_size=draw(self.block_size),
            scale=draw(self.scale),
        )
