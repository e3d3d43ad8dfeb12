"""nonfinite at eager: value of out: expected -0.0774407088 at (0, 0, 2, 2), got nan at (0, 0 …"""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 1, dtype=torch.float16).permute(3, 0, 1, 2).expand(1, 1, 16, 16)
k, v = torch.randn(2, 16, 16, 1, dtype=torch.float16).permute(3, 0, 1, 2).chunk(2, dim=1)

out = attention(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
# Not so if it is NaN, nor if it is off by a tenth of the largest value.
largest = expected.abs().max().item()
assert error <= 0.1 * largest, f"out is off by {error:.3g}"
