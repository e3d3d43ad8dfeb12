"""wrong_result at inductor: out is off by 0.918, rounding explains 1.66e-06"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return table[kv_idx]

    return score_mod


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= 0


def attention(q, k, v, score_mod, block_mask):
    return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask)


compiled = torch.compile(attention, dynamic=True, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.rand(16)
score_mod = make_score_mod(table)
block_mask = create_block_mask(mask_mod, None, None, 16, 16, device="cpu", BLOCK_SIZE=(128, 1))

out = compiled(q, k, v, score_mod, block_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
b, h, q_idx, kv_idx = torch.meshgrid(*map(torch.arange, (1, 1, 16, 16)), indexing="ij")
scores = score_mod(scores, b, h, q_idx, kv_idx).to(q.dtype).expand_as(scores)
scores = scores.masked_fill(~mask_mod(b, h, q_idx, kv_idx), float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 1.66e-06, f"out is off by {error:.3g}"
