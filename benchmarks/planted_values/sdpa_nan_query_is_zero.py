"""NaN in a query is taken for zero."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    query = torch.where(query.isnan(), 0.0, query)
    return original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
