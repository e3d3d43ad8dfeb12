"""nonfinite at inductor: value of out: expected 0.271916169 at (0, 0, 1, 0), got nan at (0, 0,
1, 0) (48 of 256 elements not finite)"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return table[q_idx] + score

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.rand(16, dtype=torch.float64)
score_mod = make_score_mod(table)

out = compiled(q, k, v, score_mod)
assert out.isfinite().all(), "out is not finite"
