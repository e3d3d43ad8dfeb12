"""Programs of diffusers' attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.diffusers.spec import Diffusers
from attnfuzz.generators.model.program import Input, Program
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Parts
from attnfuzz.generators.strategies.placing import placed


class Drawing(kernel.Drawing):
    """Self and cross attention, mostly with a mask of some sort."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.backend = weighted((4, "native"), (2, "_native_math"), (4, "flex"))
        self.masked = weighted((2, "none"), (2, "causal"), (3, "padding"), (5, "mask"))
        self.form: Any = weighted((3, "bool"), (2, "float"))
        self.scale = kernel.scales_above_0(parts.swarm)
        self.checkpoint = one_in(8)

    def draw(self, draw: Draw, backend: str) -> Program:
        chosen: Any = draw(self.backend)
        shape = self.shapes.draw(draw)
        shape = replace(shape, q_len=max(1, shape.q_len), kv_len=max(1, shape.kv_len))
        shape = self.shapes.affordable(shape)
        training = None
        if chosen != "flex" and draw(self.running.trains):
            training = replace(self.running.training(draw, False), double=False)
        masked, form = draw(self.masked), draw(self.form)
        if masked == "padding" and chosen == "_native_math":
            masked = "mask"
        mask = self.masks.draw(draw, shape) if masked == "mask" else None
        dtype = draw(self.inputs.dtypes)[0]
        lie = placed(draw, self.inputs, shape, (dtype, dtype, dtype))
        compiled = self.running.compile(draw, backend)
        q, k, v = (Input(dtype=dtype, layout=layout) for layout in lie.layouts)
        checkpoint: Any = "full" if training is not None and draw(self.checkpoint) else "none"
        surround = self.running.draw_surround(draw, shape, lie.alone, moved=False)
        return Program(
            kernel=Diffusers(
                backend=chosen,
                is_causal=masked == "causal",
                padding=masked == "padding",
                mask_form=form if mask is not None else "bool",
                scale=draw(self.scale),
            ),
            shape=shape,
            q=q,
            k=k,
            v=v,
            packed=lie.packed,
            mask=mask,
            surround=replace(surround, checkpoint=checkpoint),
            compile=compiled,
            training=training,
            dirty_memory=draw(self.running.dirty),
        )
