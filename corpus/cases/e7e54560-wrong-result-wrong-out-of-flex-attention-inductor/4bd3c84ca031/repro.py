"""wrong_result at inductor: out is off by 1.19, rounding explains 3.05e-06"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return table[kv_idx]

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.randn(16)
score_mod = make_score_mod(table)

out = compiled(q, k, v, score_mod)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
b, h, q_idx, kv_idx = torch.meshgrid(*map(torch.arange, (1, 1, 16, 16)), indexing="ij")
scores = score_mod(scores, b, h, q_idx, kv_idx).to(q.dtype).expand_as(scores)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 3.05e-06, f"out is off by {error:.3g}"
