"""compile_error at inductor: IndexError: list index out of range"""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16).requires_grad_()
v = torch.randn(1, 1, 16, 16).requires_grad_()

out = compiled(q, k, v)
dout = torch.randn(out.shape, dtype=out.dtype)
dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
