"""wrong_result at inductor: out is off by 1.49, rounding explains 4.26e-06"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + table[q_idx][kv_idx]

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 8, 64)
k = torch.randn(1, 1, 8, 64)
v = torch.randn(1, 1, 8, 64)
table = torch.randn(8, 8)
score_mod = make_score_mod(table)

out = compiled(q, k, v, score_mod)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.125 * (q @ k.mT)
b = torch.arange(1)[:, None, None, None]
h = torch.arange(1)[:, None, None]
kv_idx = torch.arange(8)
scores = torch.cat(
    [
        score_mod(scores[..., :, :, q_idx : q_idx + 1, :], b, h, q_idx, kv_idx).expand_as(
            scores[..., :, :, q_idx : q_idx + 1, :]
        ) for q_idx in torch.arange(8)
    ],
    dim=-2,
).to(q.dtype)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 4.26e-06, f"out is off by {error:.3g}"
