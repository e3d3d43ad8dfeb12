"""Programs that call `torch_npu.npu_fusion_attention`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.npu_fusion_attention.spec import NpuFusionAttention
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.program import Call, Input, Program, Shape, Surround
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.inputs import bshd_or_each
from attnfuzz.generators.strategies.kernel import SCALES, Parts

ALL_TOKENS = 2147483647


class Drawing(kernel.Drawing):
    """Each query sees a key: what a row without any gives is not documented."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.input_layout = weighted((4, "BNSD"), (3, "BSND"), (2, "BSH"), (1, "SBH"), (3, "TND"))
        # DTensor cannot merge a sharded dimension into another, as the other layouts do.
        self.unmerged = weighted((3, "BNSD"), (2, "BSND"))
        self.may_merge = one_in(4)
        self.mode = weighted((4, 0), (1, 1), (3, 2), (3, 3), (2, 4))
        self.tokens = weighted((2, 0), (3, 3), (2, 16), (2, 64), (3, ALL_TOKENS))
        self.wider = one_in(4)
        self.scale = st.sampled_from(SCALES[:16])
        self.bshd = one_in(2)

    def draw(self, draw: Draw, backend: str) -> Program:
        shape = self._shape(draw)
        mode: Any = draw(self.mode)
        layout = draw(self.input_layout)
        mask = None
        if mode < 2 and layout != "TND":
            mask = self.masks.draw(draw, shape)
            plain = Program(shape=shape, mask=mask)
            mask = None if may_hide_everything(mask, Scene(plain)) else mask
        mode = 0 if mode == 1 and mask is None else mode
        if mode in (3, 4):
            shape = replace(shape, q_len=min(shape.q_len, shape.kv_len))
        training = self.running.training(draw, False) if draw(self.running.trains) else None
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, shape.q_len == shape.kv_len, static)
        dtype = draw(self.inputs.dtypes)[0]
        placed = bshd_or_each(draw, self.bshd)
        q, k, v = (Input(dtype=dtype, layout=each) for each in placed)
        surround = self.running.draw_surround(draw, shape, alone=True, moved=False)
        mesh = None
        if surround == Surround() and draw(self.running.has_mesh):
            mesh = self.running.mesh(draw, backend, training is not None)
            layout = layout if draw(self.may_merge) else draw(self.unmerged)
        return Program(
            kernel=NpuFusionAttention(
                input_layout=layout,
                scale=draw(self.scale),
                sparse_mode=mode,
                pre_tockens=draw(self.tokens) if mode == 4 else ALL_TOKENS,
                next_tockens=draw(self.tokens) if mode == 4 else ALL_TOKENS,
                mask_shape=self._mask_shape(draw, mask),
            ),
            shape=shape,
            q=q,
            k=k,
            v=v,
            mask=mask,
            surround=surround,
            mesh=mesh,
            compile=compiled,
            calls=tuple(_fitting(call, mode) for call in calls if mask is None),
            training=training,
            dirty_memory=draw(self.running.dirty),
        )

    def _shape(self, draw: Draw) -> Shape:
        shape = replace(self.shapes.draw(draw), v_head_dim=None)
        return replace(shape, q_len=max(shape.q_len, 1), kv_len=max(shape.kv_len, 1))

    def _mask_shape(self, draw: Draw, mask: Mask | None) -> Any:
        axes = mask_axes(mask) if mask is not None else frozenset()
        if "h" in axes or (mask is not None and draw(self.wider)):
            return "BNSS"
        if "b" in axes:
            return "B1SS"
        return "SS" if draw(self.wider) else "11SS"


def _fitting(call: Call, mode: int) -> Call:
    q_len, kv_len = max(call.q_len, 1), max(call.kv_len, 1)
    return replace(call, q_len=min(q_len, kv_len) if mode in (3, 4) else q_len, kv_len=kv_len)
