"""A row of keys beyond the last is read, and multiplied by zero, where the storage has one."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def beyond(key):
    """The element that would follow the last key of the last head, 0 where memory ends."""
    place = key.storage_offset() + sum(
        (extent - (dim < 2)) * stride
        for dim, (extent, stride) in enumerate(zip(key.shape[:3], key.stride()[:3], strict=True))
    )
    stored = key.untyped_storage().nbytes() // key.element_size()
    return key.as_strided((), (), place) if place < stored else key.new_zeros(())


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    out, logsumexp = original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )
    if key.numel():
        out += 0 * beyond(key)
    return out, logsumexp


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
