"""wrong_result at eager: out is off by 4.19, rounding explains 3.66e-06"""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 1).permute(0, 3, 1, 2).expand(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

out = attention(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 3.66e-06, f"out is off by {error:.3g}"
