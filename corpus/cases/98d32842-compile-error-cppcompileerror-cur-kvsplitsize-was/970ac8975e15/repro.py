"""compile_error at inductor: CppCompileError: C++ compile error: error: ‘cur_kvSplitSize2’ w …"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return torch.where(table[b, q_idx] < q_idx, score, score)

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, dynamic=True, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(2, 16, 1, 8).transpose(1, 2)
k = torch.randn(2, 1, 16, 8)
v = torch.randn(2, 1, 16, 8)
table = torch.randint(2, (2, 16))
score_mod = make_score_mod(table)

compiled(q, k, v, score_mod)
