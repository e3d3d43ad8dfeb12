"""no_valid_choices at inductor: NoValidChoicesError: No choices to select. Provided reason: No
choices exist for backend. please consider adding ATEN into max_autotune_gemm_backends …"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + table[q_idx]

    return score_mod


def attention(q, k, v, table):
    table = -(-table)
    return flex_attention(q, k, v, score_mod=make_score_mod(table))


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.rand(16)

compiled(q, k, v, table)
