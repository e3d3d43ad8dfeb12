"""The key's gradient is halved when kv_len is not a multiple of 32."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu_backward"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, grad_out, query, key, value, *rest, **options):
    dq, dk, dv = original.call_boxed(keys, grad_out, query, key, value, *rest, **options)
    if key.size(2) % 32:
        dk = dk * 0.5
    return dq, dk, dv


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
