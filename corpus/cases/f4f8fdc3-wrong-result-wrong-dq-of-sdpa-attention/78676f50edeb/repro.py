"""wrong_result at inductor: dq is off by 18.6, rounding explains 3.65e-06"""

import torch
import torch.nn.functional as F


def attention(q, k, v, mask):
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    scores = scores + mask
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def reference(q, k, v, mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores + mask
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, k, v, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
    return {"out": out, "dq": dq, "dk": dk, "dv": dv}


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16).requires_grad_()
v = torch.randn(1, 1, 16, 16).requires_grad_()
q_idx = torch.arange(16)[:, None]
mask = q_idx < q_idx
mask = torch.zeros(16, 1).masked_fill(~mask, torch.finfo(torch.float32).min)

dq = run(compiled, (q, k, v, mask))["dq"]
expected = run(reference, (q.double(), k.double(), v.double(), mask.double()))["dq"]
error = (dq - expected)[expected.isfinite() & dq.isfinite()].abs().max().item()
assert error <= 3.65e-06, f"dq is off by {error:.3g}"
