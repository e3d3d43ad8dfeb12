"""A query that starts inside a larger buffer is read from the buffer's beginning."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    if query.storage_offset():
        query = query.as_strided(query.size(), query.stride(), 0)
    return original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
