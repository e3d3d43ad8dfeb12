"""compile_error at inductor: CppCompileError: C++ compile error: error: ‘s0’ was not declared
in this scope; did you mean ‘ks0’?"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v):
    return flex_attention(q, k, v, scale=q.size(-2) ** -0.5)


compiled = torch.compile(attention, dynamic=True, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 32, 16)
k = torch.randn(1, 1, 32, 16)
v = torch.randn(1, 1, 32, 16)

compiled(q, k, v)
