"""wrong_result at eager: dbias is off by 2.81, rounding explains 1.43e-05"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[q_idx][kv_idx]

    return score_mod


def attention(q, k, v, bias):
    return flex_attention(q, k, v, score_mod=make_score_mod(bias))


def reference(q, k, v, bias):
    scores = 0.25 * (q @ k.mT)
    b = torch.arange(1)[:, None, None, None]
    h = torch.arange(1)[:, None, None]
    kv_idx = torch.arange(16)
    scores = torch.cat(
        [
            make_score_mod(bias)(
                scores[..., :, :, q_idx : q_idx + 1, :], b, h, q_idx, kv_idx
            ).expand_as(scores[..., :, :, q_idx : q_idx + 1, :]) for q_idx in torch.arange(16)
        ],
        dim=-2,
    ).to(q.dtype)
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
bias = torch.rand(16, 16).requires_grad_()

dbias = run(attention, (q, k, v, bias))["dbias"]
expected = run(reference, (q.double(), k.double(), v.double(), bias.double()))["dbias"]
error = (dbias - expected).abs().max().item()
assert error <= 1.43e-05, f"dbias is off by {error:.3g}"
