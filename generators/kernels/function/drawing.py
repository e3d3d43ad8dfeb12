"""Programs that call a user's own attention function."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from attnfuzz.generators.kernels.function.spec import Function
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Input, Program
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw
from attnfuzz.generators.strategies.kernel import Parts
from attnfuzz.generators.strategies.placing import placed


class Drawing(kernel.Drawing):
    """Programs within what the user says that a function takes."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        functions = self.swarm.functions
        self.functions = st.sampled_from(functions) if functions else st.nothing()
        self.dtypes_of = {one: st.sampled_from(one.dtypes) for one in functions}

    def draw(self, draw: Draw, backend: str) -> Program:
        function = draw(self.functions)
        shape = self.shapes.draw(draw)
        shape = replace(shape, kv_heads=shape.q_heads, v_head_dim=None)
        if not function.cross:
            shape = replace(shape, q_len=shape.kv_len)
        shape = self.shapes.affordable(shape)
        training = None
        if function.training and draw(self.running.trains):
            training = self.running.training(draw, False)
        dtype = draw(self.dtypes_of[function])
        lie = placed(draw, self.inputs, shape, (dtype, dtype, dtype))
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        q, k, v = (Input(dtype=dtype, layout=layout) for layout in lie.layouts)
        square = lie.packed == "qkv" or not function.cross
        return Program(
            kernel=Function(target=function.target),
            shape=shape,
            q=q,
            k=k,
            v=v,
            packed=lie.packed,
            mask=Causal() if function.causal else None,
            surround=self.running.draw_surround(draw, shape, lie.alone, moved=False),
            compile=compiled,
            calls=self.running.further_calls(draw, shape, square, static),
            training=training,
            dirty_memory=draw(self.running.dirty),
        )
