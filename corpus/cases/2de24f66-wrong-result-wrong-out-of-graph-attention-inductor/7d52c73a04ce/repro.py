"""wrong_result at inductor: out is off by 2.15, rounding explains 1.43e-05"""

import torch
import torch.nn.functional as F


def attention(q, k, v, mask):
    q = q.permute(0, 2, 1, 3)
    k = k.permute(0, 2, 1, 3)
    v = v.permute(0, 2, 1, 3)
    q = q / 4.0
    key = k.permute(0, 1, 3, 2)
    scores = torch.matmul(q, key)
    mask2 = mask == 0
    mask2 = mask2.unflatten(1, (1, 16))
    mask2 = mask2.expand_as(scores)
    scores = scores.masked_fill(mask2, float("-inf"))
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return out


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(2, 16, 2, 16)
k = torch.randn(2, 16, 2, 16)
v = torch.randn(2, 16, 2, 16)
length = torch.randint(17, (2,))
b = torch.arange(2)[:, None, None, None]
kv_idx = torch.arange(16)
mask = kv_idx < length[b]
mask = mask[:, 0, 0]

out = compiled(q, k, v, mask)
q, k, v = (t.double() for t in (q, k, v))
q = q.permute(0, 2, 1, 3)
k = k.permute(0, 2, 1, 3)
v = v.permute(0, 2, 1, 3)
q = q / 4.0
key = k.permute(0, 1, 3, 2)
scores = q @ key
mask2 = mask == 0
mask2 = mask2.unflatten(1, (1, 16))
mask2 = mask2.expand_as(scores)
scores = scores.masked_fill(mask2, float("-inf"))
probs = torch.softmax(scores, dim=-1)
expected = probs @ v
error = (out - expected).abs().max().item()
assert error <= 1.43e-05, f"out is off by {error:.3g}"
