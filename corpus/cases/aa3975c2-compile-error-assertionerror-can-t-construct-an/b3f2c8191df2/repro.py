"""compile_error at aot_eager: AssertionError: Can't construct an AttrSource without a valid
base source"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[0]

    return score_mod


def attention(q, k, v, bias):
    return flex_attention(q, k, v, score_mod=make_score_mod(bias))


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
bias = torch.rand(1).requires_grad_()

with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
    out = compiled(q, k, v, bias)
    dout = torch.randn(out.shape, dtype=out.dtype)
    (dbias,) = torch.autograd.grad(out, bias, dout)
