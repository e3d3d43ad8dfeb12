"""nonfinite at inductor: value of dq: expected -0.0866247924 at (0, 0, 2, 0), got nan at (0, …"""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    scores = torch.matmul(k, q.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-2)
    return torch.matmul(probs.transpose(-2, -1), v)


def run(fn, args):
    q, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator, dtype=torch.bfloat16).to(out.dtype)
    (dq,) = torch.autograd.grad(out, q, dout)
    return {"out": out, "dq": dq}


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 64, 16, dtype=torch.bfloat16).requires_grad_()
k = torch.randn(1, 1, 64, 16, dtype=torch.bfloat16)
v = torch.randn(1, 1, 64, 16, dtype=torch.bfloat16)

dq = run(compiled, (q, k, v))["dq"]
assert dq.isfinite().all(), "dq is not finite"
