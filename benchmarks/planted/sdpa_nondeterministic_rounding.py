"""The result's last bits differ from call to call."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
generator = torch.Generator()
generator.seed()
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    out, logsumexp = original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )
    noise = torch.empty_like(out).uniform_(-1, 1, generator=generator)
    return out * (1 + torch.finfo(out.dtype).eps * noise), logsumexp


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
