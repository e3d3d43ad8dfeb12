"""crash at inductor: Signal SIGABRT: free(): invalid next size (normal); malloc(): unaligned
tcache chunk detected"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return torch.where(q_idx >= 0, table[q_idx][kv_idx], score)

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.rand(16, 16)
score_mod = make_score_mod(table)

compiled(q, k, v, score_mod)
