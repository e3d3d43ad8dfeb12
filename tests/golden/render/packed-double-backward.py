import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def inputs():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 16, 6, 16).transpose(1, 2).chunk(3, dim=1)
    q.requires_grad_()
    k.requires_grad_()
    v.requires_grad_()
    return q, k, v


def attention(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, k, v = args
    out = fn(*args)
    grads = torch.autograd.grad(out.sum(), (q, k, v), create_graph=True)
    dq, dk, dv = grads
    ddq, ddk, ddv = torch.autograd.grad(
        sum(grad.square().sum() for grad in grads), (q, k, v), materialize_grads=True
    )
    return {"out": out, "dq": dq, "dk": dk, "dv": dv, "ddq": ddq, "ddk": ddk, "ddv": ddv}
