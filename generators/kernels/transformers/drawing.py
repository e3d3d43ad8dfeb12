"""Programs of transformers' attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.transformers import rules
from attnfuzz.generators.kernels.transformers.spec import Transformers
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.program import Call, Input, Program, Shape
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Parts
from attnfuzz.generators.strategies.placing import placed

LONGEST = 300
WINDOWS = (4, 1, 2, 3, 5, 7, 8, 16, 31, 64, 100, 128, 200)
VALUES = ("normal", "tiny", "large", "zeros", "ones", "one_hot", "negative")
PATTERNS = (
    (5, "causal"), (5, "sliding"), (4, "chunked"), (1, "bidirectional"),
    (2, "bidirectional_sliding"),
)  # fmt: skip


class Drawing(kernel.Drawing):
    """Flex attention is compiled, for some ten seconds, even where the program is not. A third of
    the programs that are not compiled use a cache, as generation does."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.implementation = weighted((9, "sdpa"), (6, "eager"), (2, "flex_attention"))
        self.pattern = weighted(*PATTERNS)
        self.window = st.sampled_from(WINDOWS)
        self.has_mask = one_in(4)
        self.overlay = weighted((1, "and"), (1, "or"))
        self.special = weighted((4, "none"), (4, "padding"), (3, "packed"), (3, "block"))
        self.side = weighted((2, "left"), (1, "right"))
        self.sequences = weighted((2, 2), (2, 3), (1, 5))
        self.block = st.sampled_from((3, 1, 2, 5, 16, 40))
        self.cache = weighted((2, "none"), (2, "dynamic"), (3, "static"))
        self.updates = weighted((4, 1), (2, 2), (1, 3), (1, 4))
        self.spare = st.sampled_from((0, 0, 1, 3, 8, 40))
        self.outside = one_in(4)
        self.fresh = one_in(6)
        self.new = weighted((6, 1), (1, 2), (1, 3), (1, 9), (1, 40))
        self.scale = kernel.scales_above_0(parts.swarm)
        self.softcap = weighted((8, 0.0), (1, 2.0), (1, 50.0))

    def draw(self, draw: Draw, backend: str) -> Program:
        implementation: Any = draw(self.implementation)
        pattern: Any = draw(self.pattern)
        causal = not pattern.startswith("bidirectional")
        training = None
        if implementation != "flex_attention" and draw(self.running.trains):
            training = replace(self.running.training(draw, False), double=False)
        cache: Any = draw(self.cache) if causal and training is None else "none"
        shape = self._shape(draw, cache)
        mask = self._mask(draw, shape)
        special = draw(self.special)
        if special == "packed" and (not causal or cache != "none" or mask is not None):
            special = "padding"
        if special == "block" and not causal:
            special = "padding"
        padding: Any = draw(self.side) if special == "padding" else "none"
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, True, static)
        dtype = draw(self.inputs.dtypes)[0]
        lie = placed(draw, self.inputs, shape, (dtype, dtype, dtype))
        surround = self.running.draw_surround(draw, shape, lie.alone, moved=False)
        trains = training is not None
        checkpoint = draw(self.running.checkpoints(50 if trains else 300))
        values = self._values(draw, dtype, lie.packed, surround.projections)
        q, k, v = (
            Input(dtype=dtype, layout=layout, values=value)
            for layout, value in zip(lie.layouts, values, strict=True)
        )
        outside = cache == "none" and not surround.projections and draw(self.outside)
        spec = Transformers(
            implementation=implementation,
            pattern=pattern,
            window=draw(self.window),
            overlay=draw(self.overlay),
            padding=padding,
            sequences=draw(self.sequences) if special == "packed" else 1,
            block=draw(self.block) if special == "block" else 0,
            cache=cache,
            updates=draw(self.updates),
            spare=draw(self.spare),
            made="outside" if outside else "inside",
            scale=draw(self.scale),
            softcap=draw(self.softcap) if implementation != "sdpa" else 0.0,
        )
        p = Program(
            kernel=spec,
            shape=shape,
            q=q,
            k=k,
            v=v,
            packed=lie.packed,
            mask=mask,
            surround=replace(surround, checkpoint=checkpoint),
            compile=compiled,
            calls=tuple(_fitting(call, shape) for call in calls),
            training=training,
            grad_mode="default" if trains else draw(self.running.grad_mode),
            dirty_memory=draw(self.running.dirty),
        )
        return replace(p, kernel=rules.fitted(p, spec))

    def _shape(self, draw: Draw, cache: str) -> Shape:
        shape = self.shapes.draw(draw)
        kv_len = max(1, min(shape.kv_len, LONGEST))
        q_len = kv_len
        if cache != "none" and not draw(self.fresh) and kv_len > 1:
            q_len = min(draw(self.new), kv_len - 1)
        even = shape.head_dim + shape.head_dim % 2
        shape = replace(shape, q_len=q_len, kv_len=kv_len, head_dim=even)
        return self.shapes.affordable(shape)

    def _values(self, draw: Draw, dtype: str, packed: str, projected: bool) -> tuple[Any, ...]:
        """Values that stay clear of the least number, which eager attention adds where it hides."""
        drawn = self.inputs.draw_values(draw, dtype == "float16")
        q, k, v = (name if name in VALUES else "normal" for name in drawn)
        if packed == "qkv" or projected:
            return q, q, q
        return (q, v, v) if packed == "kv" else (q, k, v)

    def _mask(self, draw: Draw, shape: Shape) -> Mask | None:
        """A mask that is alike for all heads, or none."""
        if not draw(self.has_mask):
            return None
        mask = self.masks.draw(draw, replace(shape, q_len=shape.kv_len))
        return None if "h" in mask_axes(mask) else mask


def _fitting(call: Call, shape: Shape) -> Call:
    """The call, with as many new tokens as the first where these come after others."""
    kv_len = max(1, min(call.kv_len, LONGEST))
    if shape.q_len == shape.kv_len:
        return replace(call, q_len=kv_len, kv_len=kv_len)
    kv_len = max(2, kv_len)
    return replace(call, q_len=min(shape.q_len, kv_len - 1), kv_len=kv_len)
