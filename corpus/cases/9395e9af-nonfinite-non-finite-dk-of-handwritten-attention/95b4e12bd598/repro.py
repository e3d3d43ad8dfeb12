"""nonfinite at inductor: value of dk: expected -0.101623951 at (0, 0, 0, 0), got nan at (0, 0,
0, 0) (256 of 256 elements not finite)"""

import torch


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / 10.0
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    probs = weights / weights.sum(dim=-1, keepdim=True)
    return torch.matmul(probs, v)


def run(fn, args):
    _, k, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator, dtype=torch.bfloat16).to(out.dtype)
    (dk,) = torch.autograd.grad(out, k, dout)
    return {"out": out, "dk": dk}


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16)
k = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16).requires_grad_()
v = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16)

dk = run(compiled, (q, k, v))["dk"]
assert dk.isfinite().all(), "dk is not finite"
