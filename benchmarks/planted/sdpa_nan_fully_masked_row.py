"""Rows that an attn_mask masks fully come out as NaN."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    out, logsumexp = original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )
    if attn_mask is not None:
        masked = (attn_mask == -torch.inf).all(-1, keepdim=True)
        out.masked_fill_(masked, torch.nan)
    return out, logsumexp


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
