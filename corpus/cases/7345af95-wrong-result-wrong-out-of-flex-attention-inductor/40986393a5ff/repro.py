"""wrong_result at inductor: nan of out: expected nan at (0, 0, 5, 0), got 0 at (0, 0, 5, 0)
(16 of 256 elements are no NaN)"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v):
    return flex_attention(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.where(torch.rand(1, 1, 16, 16) < 0.005, torch.nan, torch.randn(1, 1, 16, 16))
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

out = compiled(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
expected = torch.softmax(scores, dim=-1) @ v
assert out[expected.isnan()].isnan().all(), "out lacks NaN where it is due"
