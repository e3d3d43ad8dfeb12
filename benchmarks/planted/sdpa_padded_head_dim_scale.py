"""The default scale is taken from head_dim rounded up to a multiple of 8."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    if scale is None:
        scale = (-(-query.size(3) // 8) * 8) ** -0.5
    return original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
