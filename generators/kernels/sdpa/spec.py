"""`torch.nn.functional.scaled_dot_product_attention`, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.kernels.spec import Probability, Scale, ScaleFrom
from attnfuzz.generators.model.indices import STRICT

MaskForm = Literal["is_causal", "bool", "float", "upper_left", "lower_right"]
Dim = Literal["b", "h", "q_idx", "kv_idx"]


@dataclass(frozen=True, kw_only=True)
class Sdpa:
    """`torch.nn.functional.scaled_dot_product_attention`.

    `scale_from`: see `ScaleFrom`.
    `backend`: `auto` leaves the choice to torch, any other is the only one that may be taken; with
    `set_priority` it is the first of two, and math (flash, where it is math) is the other.
    `mask_form`: how the program's mask is handed over. `is_causal` needs the mask to be
    `Causal(offset=0)` (top-left aligned, torch's documented meaning), and so does `upper_left`, the
    tensor subclass of `torch.nn.attention.bias`; its `lower_right` needs the offset Lkv - Lq.
    `float` is an additive mask of 0 and -inf in q's dtype, or of 0 and the least finite number of
    that dtype (`mask_fill`), with which a query that sees no key weighs all alike. `broadcast`
    lists the axes at which the mask tensor keeps extent 1; only axes that the mask does not depend
    on may be listed.
    `mask_rank` below 4 drops leading broadcast axes. `mask_requires_grad` (float form only) makes
    the mask a leaf with a gradient. `mask_bias`: a float mask holds standard normal numbers, not 0,
    where it hides nothing. `mask_dtype`: of a float mask; torch takes float32 with any q.
    `mask_layout`: its rows are columns in memory, each second element is left out, or what is
    broadcast is expanded (stride 0).

    `input_rank`: what q, k and v are when SDPA is called. 2 is `[L, D]` of the only head of the
    only batch entry, 3 is `[B * H, L, D]`, 5 is `[B, Hkv, G, Lq, D]` for q and
    `[B, Hkv, 1, Lkv, D]` for k and v, which are broadcast over the G heads of a group.
    `dropout_p` is judged as `generators.render.dropout` explains.
    """

    __pydantic_config__ = STRICT
    kind: Literal["sdpa"] = "sdpa"
    backend: Literal["auto", "math", "flash", "efficient"] = "auto"
    set_priority: bool = False
    scale: Scale | None = None
    scale_from: ScaleFrom = "constant"
    mask_form: MaskForm = "bool"
    broadcast: tuple[Dim, ...] = ("b", "h")
    mask_rank: Literal[1, 2, 3, 4] = 4
    mask_requires_grad: bool = False
    enable_gqa: bool = False
    mask_bias: bool = False
    mask_dtype: Literal["query", "float32"] = "query"
    mask_fill: Literal["-inf", "finfo_min"] = "-inf"
    mask_layout: Literal["contiguous", "transposed", "strided", "expanded"] = "contiguous"
    input_rank: Literal[2, 3, 4, 5] = 4
    dropout_p: Probability = 0.0
