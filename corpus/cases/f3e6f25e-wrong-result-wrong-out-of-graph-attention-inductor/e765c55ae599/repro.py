"""wrong_result at inductor: out is off by 0.857, rounding explains 1.3e-06"""

import torch
import torch.nn.functional as F


def attention(q, k, mask):
    q = q.permute(0, 2, 1, 3)
    keys = k.permute(0, 2, 1, 3)
    key = keys.permute(0, 1, 3, 2)
    scores = torch.matmul(q, key)
    scores = scores.div(torch.full((), 4.0, dtype=scores.dtype))
    scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, keys)
    return out


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).transpose(1, 2)
k = torch.randn(1, 1, 16, 16).transpose(1, 2)
q_idx = torch.arange(16)[:, None]
mask = (q_idx < 0).expand(1, 1, 16, 1)

out = compiled(q, k, mask)
q, k = (t.double() for t in (q, k))
q = q.permute(0, 2, 1, 3)
keys = k.permute(0, 2, 1, 3)
key = keys.permute(0, 1, 3, 2)
scores = q @ key
scores = scores.div(torch.full((), 4.0, dtype=scores.dtype))
scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
probs = torch.softmax(scores, dim=-1)
expected = probs @ keys
error = (out - expected).abs().max().item()
assert error <= 1.3e-06, f"out is off by {error:.3g}"
