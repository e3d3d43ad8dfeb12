"""metadata_mismatch at inductor: stride of out: expected (None, 256, 16, 1), got (None, 16,
32, 1)"""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def strides(t):
    return [stride for stride, size in zip(t.stride(), t.shape) if size > 1]


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 16, 2, 16).transpose(1, 2)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)

out = compiled(q, k, v)
expected = attention(q, k, v)
assert strides(out) == strides(expected), (strides(out), strides(expected))
