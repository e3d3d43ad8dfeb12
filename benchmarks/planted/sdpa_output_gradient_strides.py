"""A non-contiguous output gradient is read as if it were contiguous."""

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu_backward"
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, grad_out, query, key, value, *rest, **options):
    if not grad_out.is_contiguous() and grad_out.numel():
        grad_out = grad_out.clone().flatten(1).flip(1).view(grad_out.shape)
    return original.call_boxed(keys, grad_out, query, key, value, *rest, **options)


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
