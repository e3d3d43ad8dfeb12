"""wrong_result at eager: out is off by 1.98, rounding explains 0.262"""

import torch
import torch.nn.functional as F

torch.set_default_device("cuda")


def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
k = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
q_idx = torch.arange(16)[:, None]
kv_idx = torch.arange(16)
mask = (q_idx >= kv_idx).expand(1, 1, 16, 16)
attn_mask = torch.zeros(1, 1, 16, 16).masked_fill(~mask, float("-inf"))

out = attention(q, k, v, attn_mask)
q, k, v, attn_mask = (t.double() for t in (q, k, v, attn_mask))
scores = 0.25 * (q @ k.mT)
scores = scores + attn_mask
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 0.262, f"out is off by {error:.3g}"
