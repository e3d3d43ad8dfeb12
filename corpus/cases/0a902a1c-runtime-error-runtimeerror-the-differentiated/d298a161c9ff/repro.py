"""runtime_error at aot_eager: RuntimeError: The differentiated Tensor at index 0 appears to
not have been used in the graph. Set allow_unused=True if this is the desired behavior."""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[kv_idx, q_idx]

    return score_mod


def attention(q, k, v, bias):
    return flex_attention(q, k, v, score_mod=make_score_mod(bias))


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
bias = torch.arange(256, dtype=torch.float32).view(16, 16).requires_grad_()

out = compiled(q, k, v, bias)
dout = torch.randn(out.shape, dtype=out.dtype)
(dbias,) = torch.autograd.grad(out, bias, dout)
