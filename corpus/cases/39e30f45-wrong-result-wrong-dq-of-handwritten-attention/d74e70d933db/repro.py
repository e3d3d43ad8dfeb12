"""wrong_result at inductor: dq is off by 0.679, rounding explains 3.07e-06"""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / 1.0
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def reference(q, k, v):
    scores = 1.0 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    (dq,) = torch.autograd.grad(out, q, dout)
    return {"out": out, "dq": dq}


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 1).requires_grad_()
k = torch.randn(1, 16, 2, 1).permute(2, 0, 1, 3)[:1]
v = torch.randn(1, 1, 16, 1)

dq = run(compiled, (q, k, v))["dq"]
expected = run(reference, (q.double(), k.double(), v.double()))["dq"]
error = (dq - expected).abs().max().item()
assert error <= 3.07e-06, f"dq is off by {error:.3g}"
