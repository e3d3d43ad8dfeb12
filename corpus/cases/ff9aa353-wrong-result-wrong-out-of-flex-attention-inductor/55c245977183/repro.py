"""runtime_error at inductor: RuntimeError: index out of bounds: 0 <= tmp7 < cur_qSplitSize"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return table[q_idx][kv_idx]

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 32, 16)
v = torch.randn(1, 1, 32, 16)
table = torch.rand(16, 32)
score_mod = make_score_mod(table)

compiled(q, k, v, score_mod)
