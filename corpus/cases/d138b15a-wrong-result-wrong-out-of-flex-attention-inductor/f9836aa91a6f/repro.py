"""wrong_result at inductor: out is off by 1.13, rounding explains 5.05e-06"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx < h


def sliced_mod(mask_mod):
    def shifted(b, h, q_idx, kv_idx):
        return mask_mod(b, h + 1, q_idx, kv_idx)

    return shifted


def attention(q, k, v, block_mask):
    sliced = block_mask[:, 1:2]
    sliced.mask_mod = sliced_mod(block_mask.mask_mod)
    block_mask = sliced
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
block_mask = create_block_mask(mask_mod, None, 2, 16, 16, device="cpu")

out = compiled(q, k, v, block_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
b, h, q_idx, kv_idx = torch.meshgrid(*map(torch.arange, (1, 2, 16, 16)), indexing="ij")
mask = mask_mod(b, h, q_idx, kv_idx).expand(1, 2, 16, 16)[:, 1:2]
scores = scores.masked_fill(~mask, float("-inf"))
dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
expected = probs @ v
error = (out - expected).abs().max().item()
assert error <= 5.05e-06, f"out is off by {error:.3g}"
