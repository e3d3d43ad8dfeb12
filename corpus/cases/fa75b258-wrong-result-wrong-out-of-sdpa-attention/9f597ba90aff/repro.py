"""wrong_result at eager: out is off by 1.7, rounding explains 1.24e-14"""

import torch
import torch.nn.functional as F


def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, dtype=torch.float64)
k = torch.randn(1, 1, 16, 16, dtype=torch.float64)
v = torch.randn(1, 1, 16, 16, dtype=torch.float64)
q_idx = torch.arange(16)[:, None]
mask = (q_idx >= 0).expand(1, 1, 16, 16)
attn_mask = torch.zeros(1, 1, 16, 16).masked_fill(~mask, float("-inf"))

out = attention(q, k, v, attn_mask)
q, k, v, attn_mask = (t.double() for t in (q, k, v, attn_mask))
scores = 0.25 * (q @ k.mT)
scores = scores + attn_mask
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 1.24e-14, f"out is off by {error:.3g}"
