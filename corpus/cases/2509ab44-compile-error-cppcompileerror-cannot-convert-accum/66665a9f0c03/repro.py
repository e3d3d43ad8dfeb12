"""compile_error at inductor: CppCompileError: C++ compile error: error: cannot convert
‘accum_t*’ {aka ‘float*’} to ‘bool*’"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def score_mod(score, b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def attention(q, k, v):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
