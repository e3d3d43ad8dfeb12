"""runtime_error at eager: RuntimeError: cannot reshape tensor of 0 elements into shape [0, -1,
1, 16, 16] because the unspecified dimension size -1 can be any value and is ambiguous"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[q_idx]

    return score_mod


def attention(q, k, v, bias):
    return flex_attention(q, k, v, score_mod=make_score_mod(bias))


torch.manual_seed(0)
q = torch.randn(0, 1, 16, 16)
k = torch.randn(0, 1, 16, 16)
v = torch.randn(0, 1, 16, 16)
bias = torch.rand(16).requires_grad_()

out = attention(q, k, v, bias)
dout = torch.randn(out.shape, dtype=out.dtype)
(dbias,) = torch.autograd.grad(out, bias, dout)
