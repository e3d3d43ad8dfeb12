"""Programs of yunchang's long-context attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.yunchang.plugin import CAUSAL, parts_of_a_rank
from attnfuzz.generators.kernels.yunchang.spec import Yunchang
from attnfuzz.generators.model.program import Call, Input, Mesh, Program, Shape
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.inputs import bshd_or_each
from attnfuzz.generators.strategies.kernel import Parts

LONGEST = 256
HEADS = 8


class Drawing(kernel.Drawing):
    """Few programs train: what torch computes a step with has no backward in yunchang."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.ring = weighted((3, "basic_pytorch"), (2, "basic"), (3, "zigzag"), (3, "strip"))
        self.ranks = weighted((4, 2), (1, 3), (5, 4), (1, 6), (2, 8))
        self.ulysses = weighted((3, 1), (2, 2), (1, 3), (1, 4))
        self.causal = one_in(2)
        self.math = one_in(3)
        self.trains = one_in(20)
        self.bshd = st.booleans()
        self.again = one_in(4)
        self.scale = kernel.scales_above_0(parts.swarm)

    def draw(self, draw: Draw, backend: str) -> Program:
        ranks, ring = draw(self.ranks), draw(self.ring)
        ulysses = draw(self.ulysses)
        ulysses = ulysses if ranks % ulysses == 0 else ranks
        parts = ranks * parts_of_a_rank(ring)
        shape = self._shape(draw, ulysses, parts)
        alone = ulysses == ranks and ring != "basic_pytorch"
        attn_type: Any = "torch_math" if alone and draw(self.math) else "torch_flash"
        dtype = draw(self.inputs.dtypes)[0]
        lie = bshd_or_each(draw, self.bshd)
        q, k, v = (Input(dtype=dtype, layout=layout) for layout in lie)
        calls: tuple[Call, ...] = ()
        if draw(self.again):
            length = self._shape(draw, ulysses, parts).q_len
            calls = (Call(batch=shape.batch, q_len=length, kv_len=length),)
        training = self.running.training(draw, False) if draw(self.trains) else None
        return Program(
            kernel=Yunchang(
                ring=ring,
                ulysses=ulysses,
                attn_type=attn_type,
                causal=ring in CAUSAL or draw(self.causal),
                scale=draw(self.scale),
            ),
            shape=shape,
            q=q,
            k=k,
            v=v,
            mesh=Mesh(world_size=ranks, ranks="processes"),
            compile=self.running.compile(draw, backend),
            calls=calls,
            training=training,
            dirty_memory=draw(self.running.dirty),
        )

    def _shape(self, draw: Draw, ulysses: int, parts: int) -> Shape:
        shape = self.shapes.draw(draw)
        heads = -(-min(shape.q_heads, HEADS) // ulysses) * ulysses
        length = -(-max(1, min(shape.kv_len, LONGEST)) // parts) * parts
        batch = min(shape.batch, 2)
        return replace(
            shape, batch=max(1, batch), q_heads=heads, kv_heads=heads, q_len=length,
            kv_len=length, head_dim=min(shape.head_dim, 64), v_head_dim=None,
        )  # fmt: skip
