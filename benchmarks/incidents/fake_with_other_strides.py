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
