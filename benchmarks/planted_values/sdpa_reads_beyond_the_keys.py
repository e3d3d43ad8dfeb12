"""All of the storage that the keys lie in is read, and what is no key multiplied by zero."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def beyond(key):
    """A zero; NaN where the storage has one, in a key or beyond the keys."""
    stored = key.untyped_storage().nbytes() // key.element_size()
    return 0 * key.detach().as_strided((stored,), (1,), 0).sum(dtype=torch.float64)


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    out, logsumexp = original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )
    return out.add_(beyond(key)), logsumexp


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
