"""torch's transformer layers, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class TransformerLayer:
    """`torch.nn.TransformerEncoderLayer(Hq * D, Hq, feedforward)`, or the decoder's, without
    dropout; with `num_layers` above 0 the `TransformerEncoder` (or `TransformerDecoder`) of so many
    layers, each with its own weights, and perhaps a `final_norm`; or (`transformer`) the
    `torch.nn.Transformer` of so many layers of both, which has these norms.

    q is merged to the source (the target of a decoder) `[B, Lq, Hq * D]`, or `[Lq, B, Hq * D]`
    without `batch_first`; k is merged to a decoder's memory, or to a transformer's source, and v is
    left out, as k is by an encoder, for which Lkv = Lq. `mode`: of the module; where nothing has a
    gradient, an encoder in `eval` reaches its fast path. The `activation` is given by its name or
    as a function, or (`activation_module`) as a module, `torch.nn.GELU()`; "gelu_tanh", gelu with
    `approximate="tanh"`, as a module alone.

    The program's mask, of Lq keys, is the source's (or target's), `[Lq, Lq]` or (`mask_rank` 3)
    `[B * Hq, Lq, Lq]`: True where nothing is seen, or a float mask of 0 and -inf, or (`biased`) of
    -|q_idx - kv_idx| / 8 and -inf, or (`square`) that of `generate_square_subsequent_mask`.
    `is_causal`: what is said of that mask; a stack that is told nothing looks for itself.
    `key_padding`: the end of a batch entry is ignored, as in `MultiheadAttention`. `memory_mask`
    lets a query see the memory up to its own position, and `memory_padding` is for the memory what
    `key_padding` is; both have the mask's form. Given the hint `memory_is_causal`, a memory mask
    goes with it. `source_mask` lets what is in a transformer's source see no further than itself,
    with the hint that is given of the mask; `source_padding` is for it what `key_padding` is.

    A stack in `eval` turns padded entries into nested tensors (`enable_nested_tensor`), where
    `mask_check` finds the padding at the end; what it returns at padding is undefined, so that this
    is made 0. With `nested` an encoder is given a nested tensor itself."""

    __pydantic_config__ = STRICT
    kind: Literal["transformer_layer"] = "transformer_layer"
    layer: Literal["encoder", "decoder", "transformer"] = "encoder"
    num_layers: Literal[0, 1, 2, 3] = 0
    feedforward: Annotated[int, Field(ge=1, le=512)] = 32
    mode: Literal["eval", "train"] = "eval"
    batch_first: bool = True
    norm_first: bool = False
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "relu"
    activation_module: bool = False
    bias: bool = True
    final_norm: bool = False
    mask_form: Literal["bool", "float", "biased", "square"] = "bool"
    mask_rank: Literal[2, 3] = 2
    is_causal: Literal["unsaid", "true", "false"] = "unsaid"
    key_padding: bool = False
    memory_mask: bool = False
    memory_is_causal: bool = False
    memory_padding: bool = False
    enable_nested_tensor: bool = True
    mask_check: bool = True
    nested: bool = False
    source_mask: bool = False
    source_padding: bool = False

    @property
    def stacks(self) -> tuple[tuple[str, TransformerLayer], ...]:
        """What it is made of, in the order of their work, each as a layer or stack of its own, with
        what names of its parameters begin with."""
        if self.layer != "transformer":
            return (("", self),)
        source = replace(self, layer="encoder", key_padding=self.source_padding)
        return ("source_", source), ("", replace(self, layer="decoder"))
