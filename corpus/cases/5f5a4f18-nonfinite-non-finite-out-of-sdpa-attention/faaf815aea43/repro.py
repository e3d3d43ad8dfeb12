"""wrong_result at eager: out is off by 3.28, rounding explains 2.08"""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=-1.0)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16)
k = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16)
v = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16)

out = attention(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
scores = -1.0 * (q @ k.mT)
mask = torch.ones(16, 16, dtype=torch.bool).tril()
scores = scores.masked_fill(~mask, float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 2.08, f"out is off by {error:.3g}"
