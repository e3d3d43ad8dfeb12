"""compile_error at inductor: SubgraphLoweringException: aten.new_ones.default not supported in
subgraph, (missing lowering)"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v):
    return flex_attention(q, k, v)


compiled = torch.compile(attention, mode="lite", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
