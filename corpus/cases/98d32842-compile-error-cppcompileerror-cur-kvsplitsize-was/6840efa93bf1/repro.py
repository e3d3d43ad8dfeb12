"""compile_error at inductor: CppCompileError: C++ compile error: error: ‘cur_kvSplitSize2’ was
not declared in this scope; did you mean ‘cur_kvSplitSize’?"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + table[b, kv_idx]

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, dynamic=True, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(2, 64, 4, 16).transpose(1, 2)
k = torch.randn(2, 64, 4, 16).transpose(1, 2)
v = torch.randn(2, 64, 4, 16).transpose(1, 2)
table = torch.randn(2, 64)
score_mod = make_score_mod(table)

compiled(q, k, v, score_mod)
