"""compile_error at inductor: ValueError: too many values to unpack (expected 4)"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def rope(x, cos, sin):
    """Rotate neighbours in the last dimension by each position's angles."""
    cos, sin = cos[: x.shape[-2]], sin[: x.shape[-2]]
    x1, x2 = x[..., ::2], x[..., 1::2]
    out = torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
    return out.flatten(-2).to(x.dtype)


def attention(q, k, v, cos, sin):
    q, k = rope(q, cos, sin), rope(k, cos, sin)
    return flex_attention(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
angles = torch.arange(16)[:, None] * 10000.0 ** (-torch.arange(0, 16, 2) / 16)
cos, sin = angles.cos(), angles.sin()

compiled(q, k, v, cos, sin)
