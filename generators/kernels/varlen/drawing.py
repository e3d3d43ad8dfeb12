"""Programs that call `varlen_attn`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.varlen.spec import Varlen
from attnfuzz.generators.model.program import Call, Input, Program
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.inputs import bshd_or_each
from attnfuzz.generators.strategies.kernel import Parts

WINDOWS = ((-1, -1),) * 6 + ((-1, 0),) * 4 + ((0, 0), (16, 0), (64, -1), (5, 7), (128, 128))


class Drawing(kernel.Drawing):
    """What the CUDA kernels take: half precision, head dimensions in multiples of 8."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.sequences = weighted((3, 2), (2, 1), (3, 3), (1, 5))
        self.window = st.sampled_from(WINDOWS)
        self.scale = kernel.scales(self.swarm)
        self.dtype = weighted((2, "bfloat16"), (1, "float16"))
        self.bshd = st.booleans()
        self.out = one_in(4)

    def draw(self, draw: Draw, backend: str) -> Program:
        shape = self.shapes.draw(draw)
        head_dim = min(256, max(8, shape.head_dim // 8 * 8))
        shape = replace(shape, batch=1, head_dim=head_dim, v_head_dim=None)
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, False, static)
        dtype: Any = draw(self.dtype)
        training = self.running.training(draw, False) if draw(self.running.trains) else None
        layout = bshd_or_each(draw, self.bshd)
        q, k, v = (Input(dtype=dtype, layout=each) for each in layout)
        return Program(
            kernel=Varlen(
                sequences=draw(self.sequences),
                window=draw(self.window),
                scale=draw(self.scale),
                enable_gqa=shape.q_heads != shape.kv_heads,
                out=training is None and draw(self.out),
            ),
            shape=shape,
            q=q,
            k=k,
            v=v,
            compile=compiled,
            calls=tuple(_of_one(call) for call in calls),
            training=training,
            dirty_memory=draw(self.running.dirty),
        )


def _of_one(call: Call) -> Call:
    return replace(call, batch=1)
