"""wrong_result at aot_eager: ddq is off by 20.3, rounding explains 0.000139"""

import torch
import torch.nn.functional as F


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    grads = torch.autograd.grad(out, q, dout, create_graph=True)
    (dq,) = grads
    (ddq,) = torch.autograd.grad(
        sum(grad.square().sum() for grad in grads), q, materialize_grads=True
    )
    return {"out": out, "dq": dq, "ddq": ddq}


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

ddq = run(compiled, (q, k, v))["ddq"]
expected = run(reference, (q.double(), k.double(), v.double()))["ddq"]
error = (ddq - expected).abs().max().item()
assert error <= 0.000139, f"ddq is off by {error:.3g}"
