"""wrong_result at eager: out is off by 0.855, rounding explains 0.76"""

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
attn_mask = (~(q_idx + 2 >= kv_idx)).expand(1, 1, 16, 16)

out = attention(q, k, v, attn_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
scores = scores.masked_fill(~attn_mask, float("-inf"))
dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
expected = probs @ v
error = (out - expected).abs().max().item()
assert error <= 0.76, f"out is off by {error:.3g}"
