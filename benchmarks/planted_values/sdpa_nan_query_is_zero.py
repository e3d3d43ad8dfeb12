"""A row of queries with a NaN in it comes out as zeros."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    out, logsumexp = original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )
    out.masked_fill_(query.isnan().any(-1, keepdim=True), 0.0)
    return out, logsumexp


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
