"""wrong_result at inductor: out is off by 0.596, rounding explains 3.87e-06"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v):
    return flex_attention(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 1).expand(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

out = compiled(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 3.87e-06, f"out is off by {error:.3g}"
