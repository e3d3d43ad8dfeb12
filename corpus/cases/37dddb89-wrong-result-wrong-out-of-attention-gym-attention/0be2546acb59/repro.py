"""wrong_result at eager: out is off by 1.74, rounding explains 7.02e-06"""

import torch
from attn_gym.masks import generate_natten
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def attention(q, k, v, seen, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


torch.manual_seed(0)
q = torch.randn(1, 1, 18, 16)
k = torch.randn(1, 1, 18, 16)
v = torch.randn(1, 1, 18, 16)
kv_idx = torch.arange(18)
q_idx = kv_idx[:, None]
x = (q_idx % 3).clamp(1, 1)
y = (q_idx // 3).clamp(1, 4)
seen = (kv_idx % 3 - x).abs() <= 1
seen = seen & ((kv_idx // 3 - y).abs() <= 1)
block_mask = create_block_mask(generate_natten(3, 6, 3, 3), None, None, 18, 18, device="cpu")

out = attention(q, k, v, seen, block_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
scores = scores.masked_fill(~seen, float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 7.02e-06, f"out is off by {error:.3g}"
