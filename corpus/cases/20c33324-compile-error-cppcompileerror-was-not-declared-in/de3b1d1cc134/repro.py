"""compile_error at inductor: CppCompileError: C++ compile error: error: ‘s69’ was not declared
in this scope"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v, scale):
    return flex_attention(q, k, v, scale=scale)


compiled = torch.compile(attention, fullgraph=True)

for scale in [1, 2]:
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    compiled(q, k, v, scale)
