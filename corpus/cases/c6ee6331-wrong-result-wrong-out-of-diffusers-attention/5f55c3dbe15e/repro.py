"""wrong_result at eager: out is off by 2, rounding explains 6.95e-06"""

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn


def attention(q, k, v):
    return dispatch_attention_fn(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, backend="flex"
    ).transpose(1, 2)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

out = attention(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
seen = torch.ones(16, 16, dtype=torch.bool).tril()
scores = scores.masked_fill(~seen, float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 6.95e-06, f"out is off by {error:.3g}"
