"""wrong_result at eager: dbias is off by 1.41e+32, rounding explains 2.84e-05"""

import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[kv_idx]

    return score_mod


def attend(q, k, v, bias):
    return flex_attention(q, k, v, score_mod=make_score_mod(bias))


def attention(q, k, v, bias):
    return checkpoint(attend, q, k, v, bias, use_reentrant=False)


def reference(q, k, v, bias):
    scores = 0.25 * (q @ k.mT)
    b = torch.arange(1)[:, None, None, None]
    h = torch.arange(1)[:, None, None]
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    scores = make_score_mod(bias)(scores, b, h, q_idx, kv_idx).to(q.dtype)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    _, _, _, bias = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    (dbias,) = torch.autograd.grad(out, bias, dout)
    return {"out": out, "dbias": dbias}


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
bias = torch.rand(16).requires_grad_()

dbias = run(attention, (q, k, v, bias))["dbias"]
expected = run(reference, (q.double(), k.double(), v.double(), bias.double()))["dbias"]
error = (dbias - expected).abs().max().item()
assert error <= 2.84e-05, f"dbias is off by {error:.3g}"
