"""compile_error at inductor: CppCompileError: C++ compile error: error: ‘cur_qSplitSize8’ was
not declared in this scope; did you mean ‘cur_qSplitSize’?"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return torch.where(table[kv_idx, q_idx] != 0, score, float("-inf"))

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

for B, Lq, Lkv in [(1, 16, 16), (1, 2, 16)]:
    torch.manual_seed(0)
    q = torch.randn(B, 1, Lq, 16)
    k = torch.randn(B, 1, Lkv, 16)
    v = torch.randn(B, 1, Lkv, 16)
    table = torch.randint(2, (Lkv, Lq))
    score_mod = make_score_mod(table)
    compiled(q, k, v, score_mod)
