"""runtime_error at eager: AttributeError: 'NoneType' object has no attribute 'shape'"""

import torch
from torch.nn.attention.flex_attention import AuxRequest, flex_attention


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[q_idx]

    return score_mod


def attention(q, k, v, bias):
    out, aux = flex_attention(
        q, k, v, score_mod=make_score_mod(bias), return_aux=AuxRequest(lse=True)
    )
    return out, aux.lse


torch.manual_seed(0)
q = torch.randn(0, 1, 16, 16)
k = torch.randn(0, 1, 16, 16)
v = torch.randn(0, 1, 16, 16)
bias = torch.rand(16).requires_grad_()

out, lse = attention(q, k, v, bias)
dout = torch.randn(out.shape, dtype=out.dtype)
dlse = torch.randn(lse.shape, dtype=lse.dtype)
(dbias,) = torch.autograd.grad((out, lse), bias, (dout, dlse))
