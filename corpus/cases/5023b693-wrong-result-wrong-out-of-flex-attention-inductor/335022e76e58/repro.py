"""wrong_result at inductor: out is off by 1.63, rounding explains 9.84e-06"""

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v):
    q, k = F.rms_norm(q, (16,), eps=1e-6), F.rms_norm(k, (16,), eps=1e-6)
    return flex_attention(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16).transpose(2, 3)
v = torch.randn(1, 1, 16, 16)

out = compiled(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
q, k = (t * torch.rsqrt(t.square().mean(dim=-1, keepdim=True) + 1e-6) for t in (q, k))
scores = 0.25 * (q @ k.mT)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 9.84e-06, f"out is off by {error:.3g}"
