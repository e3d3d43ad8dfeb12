"""metadata_mismatch at inductor: AssertionError: expected size 2==2, stride 16==256 at dim=1;
expected size 16==16, stride 32==16 at dim=2

The fault is planted, by the function at the top; torch does not have it."""


def fake_with_other_strides():
    """A custom operator whose fake kernel promises a result laid out like q, where the real one's lies
    as `[B, L, H, D]`: what xDiT met when it registered flash-attn so."""

    import sys
    import types

    import torch
    import torch.nn.functional as F

    @torch.library.custom_op("seed::attention", mutates_args=())
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = F.scaled_dot_product_attention(q, k, v)
        return out.transpose(1, 2).contiguous().transpose(1, 2)

    @attention.register_fake
    def fake(q, k, v):
        return torch.empty_like(q)

    module = types.ModuleType("custom_kernel")
    module.attention = attention
    sys.modules["custom_kernel"] = module


fake_with_other_strides()

import torch
from custom_kernel import attention as attention_function


def attention(q, k, v):
    return attention_function(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)

compiled(q, k, v)
