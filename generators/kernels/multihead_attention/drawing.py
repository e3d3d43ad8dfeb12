"""Programs of `torch.nn.MultiheadAttention`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.multihead_attention.spec import MultiheadAttention
from attnfuzz.generators.kernels.padding import sees_first_key
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal, Mask
from attnfuzz.generators.model.program import Call, Input, Program, Shape, Surround, Training
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.inputs import bshd_or_each
from attnfuzz.generators.strategies.kernel import Parts

LONGEST = 300
WIDEST = 256
"""Of Hq * D: weights are its square."""


class Drawing(kernel.Drawing):
    """A third of the programs take the fast path of an evaluated module: self-attention, batch
    first, an even number of heads, bool masks, and nothing that has a gradient."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.fast = one_in(3)
        self.self_attention = weighted((3, True), (2, False))
        self.mode = weighted((3, "eval"), (2, "train"))
        self.batch_first = weighted((3, True), (1, False))
        self.need_weights = weighted((3, "none"), (2, "averaged"), (2, "heads"))
        self.has_mask = weighted((3, "none"), (3, "causal"), (3, "tree"))
        self.form = weighted((3, "bool"), (2, "float"), (1, "biased"))
        self.rank = weighted((2, 2), (1, 3))
        self.hint, self.wrong_hint = one_in(3), one_in(40)
        self.is_refused = self.has("refused")
        self.padding, self.padded = one_in(3), one_in(2)
        self.without_bias, self.zero_attn, self.bias_kv = one_in(6), one_in(6), one_in(6)
        self.by_function, self.separate = one_in(4), one_in(3)
        self.static = weighted((1, "none"), (1, "key"), (1, "value"), (2, "both"))
        self.unbatched, self.nested = one_in(10), one_in(4)
        self.even_heads = weighted((3, True), (1, False))
        self.bshd = st.booleans()
        self.checkpoint = self.running.checkpoints(100)

    def draw(self, draw: Draw, backend: str) -> Program:
        fast = draw(self.fast)
        own = fast or draw(self.self_attention)
        shape = self._shape(draw, own, fast or draw(self.even_heads))
        unbatched = not fast and draw(self.unbatched)
        shape = replace(shape, batch=1) if unbatched else shape
        nested = fast and backend == "none" and not shape.q_heads % 2 and draw(self.nested)
        zero_attn, bias_kv = (not fast and draw(one) for one in (self.zero_attn, self.bias_kv))
        extra_key = zero_attn or bias_kv
        mask = None if nested else self._mask(draw, shape, extra_key)
        training = None
        if not fast and draw(self.running.trains):
            training = self._training(draw, own, unbatched)
        attention = replace(
            self._kernel(draw, own, mask, extra_key),
            add_zero_attn=zero_attn,
            add_bias_kv=bias_kv,
            unbatched=unbatched,
        )
        if fast:
            attention = self._fast(draw, attention, mask, nested)
        elif draw(self.by_function):
            attention = self._function(draw, attention, shape)
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, own or shape.q_len == shape.kv_len, static)
        calls = tuple(_fitting(call, unbatched) for call in calls if mask in (None, Causal()))
        dtype = draw(self.inputs.dtypes_and_double)
        placed = bshd_or_each(draw, self.bshd)
        values: Any = self.inputs.draw_values(draw, "float16" in dtype)
        q, k, v = (
            Input(dtype=dtype[0], layout=layout, values=value)
            for layout, value in zip(placed, values, strict=True)
        )
        return Program(
            kernel=attention,
            shape=shape,
            q=q,
            k=k,
            v=v,
            mask=mask,
            surround=Surround(checkpoint=draw(self.checkpoint)),
            compile=compiled,
            calls=calls,
            training=training,
            grad_mode="default" if training is not None else draw(self.running.grad_mode),
            dirty_memory=draw(self.running.dirty),
        )

    def _fast(
        self, draw: Draw, attention: MultiheadAttention, mask: Mask | None, nested: bool
    ) -> MultiheadAttention:
        """What `torch._native_multi_head_attention` computes."""
        padded = not nested and sees_first_key(mask) and draw(self.padded)
        return replace(
            attention,
            mode="eval",
            batch_first=True,
            bias=True,
            need_weights="none" if nested else attention.need_weights,
            mask_form="bool",
            is_causal=False,
            key_padding="bool" if padded else "none",
            nested=nested,
        )

    def _function(
        self, draw: Draw, attention: MultiheadAttention, shape: Shape
    ) -> MultiheadAttention:
        """The function that the module calls, with what only itself takes."""
        alike = shape.q_heads == shape.kv_heads and shape.v_head_dim in (None, shape.head_dim)
        static: Any = draw(self.static)
        if attention.self_attention or attention.add_bias_kv or not alike:
            static = "none"
        return replace(
            attention,
            called="function",
            batch_first=False,
            separate_weights=draw(self.separate),
            static=static,
        )

    def _kernel(
        self, draw: Draw, own: bool, mask: Mask | None, extra_key: bool
    ) -> MultiheadAttention:
        mode: Any = draw(self.mode)
        form: Any = draw(self.form)
        depends = mask is not None and bool(mask_axes(mask) & {"b", "h"})
        causal = mask == Causal() and form != "biased" and draw(self.hint)
        wrong = mask is None and mode == "train" and self.is_refused and draw(self.wrong_hint)
        padded = (extra_key or sees_first_key(mask)) and draw(self.padding)
        return MultiheadAttention(
            mode=mode,
            self_attention=own,
            batch_first=draw(self.batch_first),
            bias=not draw(self.without_bias),
            need_weights=draw(self.need_weights),
            mask_form=form if mask is not None else "bool",
            mask_rank=3 if depends else draw(self.rank) if mask is not None else 2,
            is_causal=causal or wrong,
            key_padding="none" if not padded else "bool" if form == "bool" else "float",
        )

    def _shape(self, draw: Draw, own: bool, even: bool) -> Shape:
        shape = self.shapes.draw(draw)
        head_dim = min(shape.head_dim, WIDEST // 2)
        heads = max(1, min(shape.q_heads, WIDEST // head_dim))
        group = shape.q_heads // shape.kv_heads
        if even and heads % 2 and (heads + 1) * head_dim <= WIDEST:
            heads, group = heads + 1, 1
        if own or heads % group:
            group = 1
        v_head_dim = None if own or shape.v_head_dim is None else min(shape.v_head_dim, WIDEST)
        q_len, kv_len = (max(1, min(n, LONGEST)) for n in (shape.q_len, shape.kv_len))
        return self.shapes.affordable(
            Shape(
                batch=shape.batch,
                q_heads=heads,
                kv_heads=heads // group,
                q_len=kv_len if own else q_len,
                kv_len=kv_len,
                head_dim=head_dim,
                v_head_dim=v_head_dim,
            )
        )

    def _mask(self, draw: Draw, shape: Shape, may_hide: bool) -> Mask | None:
        which = draw(self.has_mask)
        if which == "none":
            return None
        if which == "causal":
            return Causal()
        mask = self.masks.draw(draw, shape)
        hides = may_hide_everything(mask, Scene(Program(shape=shape, mask=mask)))
        return None if hides and not may_hide else mask

    def _training(self, draw: Draw, own: bool, unbatched: bool) -> Training:
        training = self.running.training(draw, False)
        if unbatched and training.grad_layout == "transposed":
            training = replace(training, grad_layout="contiguous")
        return replace(training, wrt=("q",)) if own else training


def _fitting(call: Call, unbatched: bool) -> Call:
    q_len, kv_len = (max(1, min(n, LONGEST)) for n in (call.q_len, call.kv_len))
    return replace(call, batch=1 if unbatched else call.batch, q_len=q_len, kv_len=kv_len)
