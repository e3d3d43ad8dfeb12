"""metadata_mismatch at inductor: stride of out: expected (None, 256, 16, 1), got (None, 16,
32, 1)"""

import torch
import torch.nn.functional as F


def attention(q, k):
    q = q.permute(0, 2, 1, 3)
    keys = k.permute(0, 2, 1, 3)
    key = keys.permute(0, 1, 3, 2)
    scores = torch.matmul(q, key)
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, keys)
    return out


def strides(t):
    return [stride for stride, size in zip(t.stride(), t.shape) if size > 1]


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 16, 2, 16)
k = torch.randn(1, 2, 16, 16).transpose(1, 2)

out = compiled(q, k)
expected = attention(q, k)
assert strides(out) == strides(expected), (strides(out), strides(expected))
