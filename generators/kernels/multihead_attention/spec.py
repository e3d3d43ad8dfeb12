"""`torch.nn.MultiheadAttention`, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class MultiheadAttention:
    """`torch.nn.MultiheadAttention(Hq * D, Hq, kdim=Hkv * D, vdim=Hkv * Dv)`, without dropout.

    q, k and v are merged to `[B, L, H * D]` (or `[L, B, H * D]` without `batch_first`) and handed
    to the module, whose weights are inputs of the program; with `self_attention` q is handed over
    three times and k and v are left out. `mode`: of the module; where nothing has a gradient,
    `eval` reaches its fast path. `need_weights`: the attention weights are a result, averaged over
    the heads or of each (`heads`).

    The program's mask is `attn_mask`, `[Lq, Lkv]` or (`mask_rank` 3) `[B * Hq, Lq, Lkv]`, True
    where nothing is seen, or a float mask of 0 and -inf, or (`biased`) of -|q_idx - kv_idx| / 8 and
    -inf. `is_causal` is the hint that it is the causal one. `key_padding`: the last keys of a batch
    entry are ignored, a third of them in the first entry, two thirds in the second, none in the
    third, and so on; the first key never is.

    `called` by its function, `F.multi_head_attention_forward`, it takes what the module never hands
    on: `separate_weights` for q, k and v that are as wide, and k or v themselves as `static` keys
    and values, in place of projected ones. `unbatched` inputs are `[L, H * D]`. With `nested` the
    input is a nested tensor (of strided layout, as the fast path takes), of entries as long as
    `key_padding` leaves them; the result is padded with 0."""

    __pydantic_config__ = STRICT
    kind: Literal["multihead_attention"] = "multihead_attention"
    mode: Literal["eval", "train"] = "eval"
    self_attention: bool = False
    batch_first: bool = True
    bias: bool = True
    need_weights: Literal["none", "averaged", "heads"] = "none"
    mask_form: Literal["bool", "float", "biased"] = "bool"
    mask_rank: Literal[2, 3] = 2
    is_causal: bool = False
    key_padding: Literal["none", "bool", "float"] = "none"
    add_zero_attn: bool = False
    add_bias_kv: bool = False
    called: Literal["module", "function"] = "module"
    separate_weights: bool = False
    static: Literal["none", "key", "value", "both"] = "none"
    unbatched: bool = False
    nested: bool = False
