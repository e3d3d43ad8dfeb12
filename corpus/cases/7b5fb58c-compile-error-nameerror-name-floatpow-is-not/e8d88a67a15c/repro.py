"""compile_error at inductor: NameError: name 'FloatPow' is not defined

For NVIDIA H100 80GB HBM3: found by attnfuzz's virtual-sm90, not run on such a device yet."""

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.set_default_device("cuda")


def attention(q, k, v):
    return flex_attention(q, k, v, scale=q.size(-2) ** -0.5)


compiled = torch.compile(attention, dynamic=True, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 32)
k = torch.randn(1, 1, 16, 32)
v = torch.randn(1, 1, 16, 32)

compiled(q, k, v)
torch.cuda.synchronize()
