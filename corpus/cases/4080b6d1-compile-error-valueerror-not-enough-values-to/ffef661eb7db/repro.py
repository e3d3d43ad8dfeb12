"""compile_error at inductor: ValueError: not enough values to unpack (expected 4, got 2)"""

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention


def attention(x, wq, wk, wv, wo):
    q = F.linear(x, wq).unflatten(-1, (1, 16)).transpose(1, 2)
    k = F.linear(x, wk).unflatten(-1, (1, 16)).transpose(1, 2)
    v = F.linear(x, wv).unflatten(-1, (1, 16)).transpose(1, 2)
    return F.linear(flex_attention(q, k, v).transpose(1, 2).flatten(2), wo)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
x = torch.randn(1, 16, 16)
wq = torch.randn(16, 16) / 16 ** 0.5
wk = torch.randn(16, 16) / 16 ** 0.5
wv = torch.randn(16, 16) / 16 ** 0.5
wo = torch.randn(16, 16) / 16 ** 0.5

compiled(x, wq, wk, wv, wo)
