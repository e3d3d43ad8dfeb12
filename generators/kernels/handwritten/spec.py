"""Attention out of plain tensor operations, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.kernels.spec import Probability, Scale, ScaleFrom
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Handwritten:
    """Attention out of plain tensor operations, in the ways models write it.

    `product`: how q @ k.T is spelled; `baddbmm` and `bmm` work on 3-D `[B * H, L, D]`. `scaling`:
    where the scale goes: multiplied or divided, on q, on k (`key`), on both as its root, or on the
    product; `scale_as` a Python number, an integer (`scores / 8`) or a 0-d tensor; `scale_from` as
    `ScaleFrom` says.
    `masking`: `add` a float mask (0 or `fill`), or `masked_fill`/`where` with `fill`.
    `softmax_dim`: the last dimension of `q k^T`, or (`transposed`) of k q^T softmaxed over
    dimension -2 and transposed back before `@ v`. `softmax_dtype`: upcast around the softmax as
    Llama-style models do. `dropout`: `F.dropout(p, training=False)`; `dropout_p` is that of one
    that trains, judged as `generators.render.dropout` explains. GQA is by `repeat_interleave` or
    `expand`. `rank5` puts heads into `[B, Hkv, G, L, D]` and lets matmul broadcast over G.
    """

    __pydantic_config__ = STRICT
    kind: Literal["handwritten"] = "handwritten"
    product: Literal["matmul", "einsum", "bmm", "baddbmm", "rank5"] = "matmul"
    transpose: Literal["transpose", "mT", "permute"] = "transpose"
    scaling: Literal["mul", "div", "query_mul", "query_div", "key_mul", "both", "none"] = "div"
    scale: Scale | None = None
    scale_from: ScaleFrom = "constant"
    scale_as: Literal["constant", "integer", "tensor"] = "constant"
    masking: Literal["add", "masked_fill", "where"] = "masked_fill"
    fill: Literal["-inf", "finfo_min"] = "-inf"
    softmax: Literal["functional", "method", "module", "exp_sum"] = "functional"
    transposed: bool = False
    softmax_dtype: Literal["same", "float32"] = "same"
    dropout: bool = False
    gqa: Literal["repeat_interleave", "expand"] = "repeat_interleave"
    out_layout: Literal["bhld", "blhd", "merged"] = "bhld"
    dropout_p: Probability = 0.0
