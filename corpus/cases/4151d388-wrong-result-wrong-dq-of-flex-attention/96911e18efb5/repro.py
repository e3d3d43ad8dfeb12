"""wrong_result at eager: dq is off by 1.68, rounding explains 8.86e-06"""

import functools

import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

torch.set_default_device("cuda")


def score_mod(score, b, h, q_idx, kv_idx):
    return functools.reduce(lambda x, _: x * torch.sigmoid(x), range(2), score)


def attend(q, k, v):
    return flex_attention(q, k, v, score_mod=score_mod)


def attention(q, k, v):
    return checkpoint(attend, q, k, v, use_reentrant=False)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    b = torch.arange(1)[:, None, None, None]
    h = torch.arange(1)[:, None, None]
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    scores = score_mod(scores, b, h, q_idx, kv_idx)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator, device="cpu").to(out)
    (dq,) = torch.autograd.grad(out, q, dout)
    return {"out": out, "dq": dq}


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, device="cpu").to("cuda").requires_grad_()
k = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")

dq = run(attention, (q, k, v))["dq"]
expected = run(reference, (q.double(), k.double(), v.double()))["dq"]
error = (dq - expected).abs().max().item()
assert error <= 8.86e-06, f"dq is off by {error:.3g}"
