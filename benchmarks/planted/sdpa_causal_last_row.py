"""Causal SDPA is off by one in the last row of a ragged block: it does not see itself."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    out, logsumexp = original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )
    if is_causal and query.size(2) % 16 > 1 and query.size(2) == key.size(2):
        last, _ = original.call_boxed(
            keys, query[:, :, -1:], key[:, :, :-1], value[:, :, :-1], dropout_p, False, scale=scale
        )
        out[:, :, -1:] = last
    return out, logsumexp


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
