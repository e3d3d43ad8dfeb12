"""compile_error at inductor: RuntimeError: Expected size for first two dimensions of batch2
tensor to be: [16, 1] but got: [16, 16]."""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    key = k.permute(2, 1, 0, 3)
    key = key.permute(2, 1, 3, 0)
    scores = torch.matmul(q, key)
    scores = scores * 0.25
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return out


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
