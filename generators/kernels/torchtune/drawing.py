"""Programs of torchtune's attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.torchtune.spec import Torchtune
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.program import Input, Program
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Parts
from attnfuzz.generators.strategies.placing import placed

HEAD_DIMS = ((4, 128), (3, 64), (3, 256), (1, 96))
"""Those of torchtune's models: Llama 2 and 3, Llama 3.2 1B, Gemma, Phi-3."""


class Drawing(kernel.Drawing):
    """Mostly trained, as torchtune trains, and mostly packed sequences, on a card above all, which
    has them alone of its own."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        packed = 20 if parts.swarm.place.gpu else 5
        self.pattern: Any = weighted((packed, "packed"), (2, "causal"), (1, "all"), (2, "masked"))
        self.forward_only = one_in(4)
        self.of_a_model: Any = st.just(None)
        if parts.swarm.place.gpu:  # where tiles have to fit
            self.of_a_model = weighted(*HEAD_DIMS)
        self.sequences = weighted((3, 2), (1, 1), (2, 3), (1, 5), (1, 8))

    def draw(self, draw: Draw, backend: str) -> Program:
        pattern = draw(self.pattern)
        shape = self.shapes.draw(draw)
        shape = replace(
            shape,
            q_len=max(1, shape.q_len),
            kv_len=max(1, shape.kv_len),
            head_dim=draw(self.of_a_model) or shape.head_dim,
            v_head_dim=None,
        )
        if pattern in ("packed", "causal"):
            shape = replace(shape, q_len=shape.kv_len)
        if pattern == "packed":
            shape = self.shapes.for_flex(shape)
            shape = replace(shape, q_len=shape.kv_len, v_head_dim=None)
        shape = self.shapes.affordable(shape)
        if pattern in ("packed", "causal"):
            shape = replace(shape, kv_len=shape.q_len)
        training = None
        if not draw(self.forward_only):
            training = replace(self.running.training(draw, False), double=False)
        mask = self.masks.draw(draw, shape) if pattern == "masked" else None
        if mask is None or "h" in mask_axes(mask):
            mask, pattern = None, "all" if pattern == "masked" else pattern
        dtypes = draw(self.inputs.dtypes)
        if pattern == "packed":
            dtypes = self.inputs.for_flex(draw, dtypes)
        dtype = dtypes[0]
        lie = placed(draw, self.inputs, shape, (dtype, dtype, dtype))
        compiled = self.running.compile(draw, backend)
        if compiled is not None and pattern == "packed" and self.swarm.place.gpu:
            compiled = replace(compiled, fullgraph=False)  # flex_attention is compiled apart
        q, k, v = (Input(dtype=dtype, layout=layout) for layout in lie.layouts)
        surround = self.running.draw_surround(draw, shape, lie.alone, moved=False)
        sequences = draw(self.sequences)
        if pattern != "packed":
            sequences = Torchtune().sequences
        return Program(
            kernel=Torchtune(pattern=pattern, sequences=sequences),
            shape=shape,
            q=q,
            k=k,
            v=v,
            packed=lie.packed,
            mask=mask,
            surround=surround,
            compile=compiled,
            training=training,
            dirty_memory=draw(self.running.dirty),
        )
