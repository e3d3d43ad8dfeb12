"""Programs of torch's transformer layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.padding import OwnKeys, sees_first_key
from attnfuzz.generators.kernels.transformer_layer.rules import (
    looks_for_causal,
    undefined_in_memory,
)
from attnfuzz.generators.kernels.transformer_layer.spec import TransformerLayer
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal, Mask, SlidingWindow
from attnfuzz.generators.model.program import Call, Input, Program, Shape, Surround
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.inputs import bshd_or_each
from attnfuzz.generators.strategies.kernel import Parts

LONGEST = 200
WIDEST = 128
"""Of Hq * D: weights are its square, and a decoder of three layers has thirty of them."""
NARROWEST = 8
"""A layer norm over fewer numbers is all rounding where they happen to be alike."""


class Drawing(kernel.Drawing):
    """Half of an encoder's and a transformer's programs take its fast path: evaluated, batch first,
    with biases and an even number of heads, and nothing that has a gradient."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.layer = weighted((5, "encoder"), (3, "decoder"), (2, "transformer"))
        self.fast = one_in(2)
        self.mode = weighted((3, "eval"), (2, "train"))
        self.num_layers = weighted((4, 0), (1, 1), (2, 2), (1, 3))
        self.feedforward = st.sampled_from((32, 16, 64, 24, 17, 1, 128))
        self.batch_first = weighted((3, True), (1, False))
        self.norm_first, self.without_bias = one_in(3), one_in(6)
        self.activation = weighted((4, "relu"), (5, "gelu"), (1, "gelu_tanh"), (1, "silu"))
        self.activation_module = one_in(4)
        self.final_norm = one_in(3)
        self.has_mask = weighted((4, "none"), (4, "causal"), (1, "window"), (3, "tree"))
        self.window = st.integers(1, 16)
        self.form = weighted((4, "bool"), (4, "float"), (2, "biased"))
        self.square = one_in(3)
        self.rank = weighted((2, 2), (1, 3))
        self.said = weighted((3, "unsaid"), (2, "true"), (1, "false"))
        self.padding, self.memory_mask, self.memory_hint = one_in(2), one_in(3), one_in(2)
        self.no_nested_tensor, self.no_mask_check = one_in(6), one_in(4)
        self.nested, self.made_nested = one_in(4), one_in(2)
        self.bshd = st.booleans()
        self.checkpoint = self.running.checkpoints(100)

    def draw(self, draw: Draw, backend: str) -> Program:
        kind: Any = draw(self.layer)
        decoder = kind != "encoder"
        fast = kind != "decoder" and draw(self.fast)
        shape = self._shape(draw, decoder, fast)
        mask = self._mask(draw, shape)
        layer = self._layer(draw, kind, mask, backend)
        training = None
        if fast:
            layer, mask = self._fast(draw, layer, mask, backend, shape)
        elif draw(self.running.trains):
            training = self.running.training(draw, False)
            used = ("q", "k") if decoder else ("q",)
            wrt = tuple(name for name in used if name in training.wrt) or ("q",)
            training = replace(training, wrt=wrt)
            if layer.activation == "relu" and not layer.bias:
                layer = replace(layer, activation="gelu")
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, shape.q_len == shape.kv_len, static)
        calls = tuple(_fitting(call, decoder) for call in calls if mask in (None, Causal()))
        dtype = draw(self.inputs.dtypes_and_double)
        placed = bshd_or_each(draw, self.bshd)
        values: Any = self.inputs.draw_values(draw, "float16" in dtype)
        q, k, v = (
            Input(dtype=dtype[0], layout=layout, values=value)
            for layout, value in zip(placed, values, strict=True)
        )
        program = Program(
            kernel=layer,
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
        return _fitted(program, layer)

    def _layer(self, draw: Draw, kind: Any, mask: Mask | None, backend: str) -> TransformerLayer:
        decoder, both = kind != "encoder", kind == "transformer"
        mode: Any = draw(self.mode)
        num_layers: Any = draw(self.num_layers)
        activation: Any = draw(self.activation)
        if backend == "inductor":  # compiles each layer anew, for some ten seconds
            num_layers = min(num_layers, 2 - decoder)
        if both:
            num_layers = min(max(num_layers, 1), 2)
        form: Any = draw(self.form)
        form = "float" if form == "biased" and mask is None else form
        said: Any = draw(self.said) if mask is not None else "unsaid"
        if said == "true" and (mask != Causal() or form == "biased"):
            said = "unsaid"
        rank: Any = draw(self.rank) if mask is not None else 2
        if mask == Causal() and draw(self.square):
            form, rank = "square", 2
        depends = mask is not None and bool(mask_axes(mask) & {"b", "h"})
        rank = 3 if depends else rank
        padded = sees_first_key(mask) and draw(self.padding)
        memory_mask = decoder and draw(self.memory_mask)
        stack = num_layers > 0 and not decoder
        return TransformerLayer(
            layer=kind,
            num_layers=num_layers,
            feedforward=draw(self.feedforward),
            mode=mode,
            batch_first=draw(self.batch_first),
            norm_first=draw(self.norm_first),
            activation=activation,
            activation_module=activation == "gelu_tanh" or draw(self.activation_module),
            bias=not draw(self.without_bias),
            final_norm=both or (num_layers > 0 and draw(self.final_norm)),
            mask_form=form,
            mask_rank=rank,
            is_causal=said,
            key_padding=padded,
            memory_mask=memory_mask,
            memory_is_causal=memory_mask and draw(self.memory_hint),
            memory_padding=decoder and draw(self.padding),
            enable_nested_tensor=not (stack and draw(self.no_nested_tensor)),
            source_mask=both and draw(self.memory_mask),
            source_padding=both and draw(self.padding),
        )

    def _fast(
        self, draw: Draw, layer: TransformerLayer, mask: Mask | None, backend: str, shape: Shape
    ) -> tuple[TransformerLayer, Mask | None]:
        """What `torch._transformer_encoder_layer_fwd` computes; half of the stacks make nested
        tensors of what is padded, which they do without a mask."""
        layer = replace(layer, mode="eval", batch_first=True, bias=True)
        eager = backend == "none"
        if layer.layer == "transformer":
            if draw(self.made_nested):
                layer = replace(layer, source_mask=False, source_padding=True)
            return layer, mask
        if eager and not shape.q_heads % 2 and draw(self.nested):
            return replace(layer, nested=True, key_padding=False), None
        if layer.num_layers > 0 and draw(self.made_nested):
            check = not (eager and draw(self.no_mask_check))
            layer = replace(layer, key_padding=True, enable_nested_tensor=True, mask_check=check)
            return replace(layer, norm_first=False), None
        return layer, mask

    def _shape(self, draw: Draw, decoder: bool, even: bool) -> Shape:
        shape = self.shapes.draw(draw)
        head_dim = min(shape.head_dim, WIDEST // 2)
        heads = max(1, min(shape.q_heads, WIDEST // head_dim))
        if even and heads % 2 and (heads + 1) * head_dim <= WIDEST:
            heads += 1
        if heads * head_dim < NARROWEST:
            head_dim = NARROWEST
        q_len, kv_len = (max(1, min(n, LONGEST)) for n in (shape.q_len, shape.kv_len))
        affordable = self.shapes.affordable(
            Shape(
                batch=shape.batch,
                q_heads=heads,
                kv_heads=heads,
                q_len=q_len,
                kv_len=kv_len,
                head_dim=head_dim,
            )
        )
        return affordable if decoder else replace(affordable, kv_len=affordable.q_len)

    def _mask(self, draw: Draw, shape: Shape) -> Mask | None:
        which = draw(self.has_mask)
        if which == "none":
            return None
        if which == "causal":
            return Causal()
        if which == "window":
            return SlidingWindow(window=draw(self.window))
        mask = self.masks.draw(draw, replace(shape, kv_len=shape.q_len))
        scene = OwnKeys.of(Scene(Program(shape=shape, mask=mask)))
        return None if may_hide_everything(mask, scene) else mask


def _fitting(call: Call, decoder: bool) -> Call:
    q_len, kv_len = (max(1, min(n, LONGEST)) for n in (call.q_len, call.kv_len))
    return replace(call, q_len=q_len, kv_len=kv_len if decoder else q_len)


def _fitted(program: Program, layer: TransformerLayer) -> Program:
    """The program with what does not fit its mask, or that it is compiled, left out."""
    if program.mask is None:
        form: Any = "float" if layer.mask_form in ("biased", "square") else layer.mask_form
        layer = replace(layer, mask_form=form, mask_rank=2, is_causal="unsaid")
    if layer.is_causal == "unsaid" and looks_for_causal(program, layer):
        layer = replace(layer, is_causal="false")
    if undefined_in_memory(layer):
        layer = replace(layer, memory_padding=True)
    return replace(program, kernel=layer)
