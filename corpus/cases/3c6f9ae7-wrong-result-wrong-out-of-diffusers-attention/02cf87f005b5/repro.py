"""wrong_result at eager: out is off by 1.21, rounding explains 6.79e-06"""

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn


def attention(q, k, v, attn_mask):
    return dispatch_attention_fn(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=attn_mask, backend="flex"
    ).transpose(1, 2)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
attn_mask = torch.arange(16) < 16 - (torch.arange(1)[:, None] + 1) % 3 * 16 // 3

out = attention(q, k, v, attn_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
scores = scores.masked_fill(~attn_mask[:, None, None, :], float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 6.79e-06, f"out is off by {error:.3g}"
