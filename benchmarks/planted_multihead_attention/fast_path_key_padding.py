"""The module's fast path takes no heed of key_padding_mask where there is no attn_mask."""

import torch

OPERATOR = "_native_multi_head_attention"
KEY_PADDING = 1
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(
    keys, query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias,
    mask=None, need_weights=True, average_attn_weights=True, mask_type=None,
):  # fmt: skip
    if mask_type == KEY_PADDING:
        mask, mask_type = None, None
    return original.call_boxed(
        keys, query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias,
        mask, need_weights, average_attn_weights, mask_type,
    )  # fmt: skip


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
