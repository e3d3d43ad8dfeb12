"""compile_error at dynamo: RuntimeError: Detected that you are using FX to symbolically trace
a dynamo-optimized function. This is not supported at the moment."""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[q_idx]

    return score_mod


def attention(q, k, v, bias):
    return flex_attention(q, k, v, score_mod=make_score_mod(bias))


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
bias = torch.rand(16).requires_grad_()

with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    out = compiled(q, k, v, bias)
    dout = torch.randn(out.shape, dtype=out.dtype)
    (dbias,) = torch.autograd.grad(out, bias, dout)
