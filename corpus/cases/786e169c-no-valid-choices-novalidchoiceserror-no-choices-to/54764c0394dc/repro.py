"""no_valid_choices at inductor: NoValidChoicesError: No choices to select. Provided reason:  …"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v):
    return flex_attention(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 128)
k = torch.randn(1, 1, 16, 128)
v = torch.randn(1, 1, 16, 128)

compiled(q, k, v)
