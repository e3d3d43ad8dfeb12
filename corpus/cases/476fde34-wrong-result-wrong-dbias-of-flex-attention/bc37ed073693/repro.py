"""runtime_error at eager: AssertionError: idx shape torch.Size([1]) must match value shape
torch.Size([16])"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[h][q_idx]

    return score_mod


def attention(q, k, v, bias):
    return flex_attention(q, k, v, score_mod=make_score_mod(bias))


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
bias = torch.rand(1, 16).requires_grad_()

out = attention(q, k, v, bias)
dout = torch.randn(out.shape, dtype=out.dtype)
(dbias,) = torch.autograd.grad(out, bias, dout)
