"""compile_error at inductor: NotImplementedError: Unsupported for `epilogue_nodes` in
CppFlexAttentionTemplate."""

import torch
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v):
    return flex_attention(q, k, v) + q


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
