import torch
import torch.nn.functional as F


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16).requires_grad_()
    k = torch.randn(1, 1, 16, 16).requires_grad_()
    v = torch.randn(1, 1, 16, 16).requires_grad_()
    return q, k, v


@torch.compiler.nested_compile_region
def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def attention(q, k, v):
    q = q + attend(q, k, v)
    return attend(q, k, v)


def plain(q, k, v):
    scores = 0.25 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


def reference(q, k, v):
    q = q + plain(q, k, v)
    return plain(q, k, v)


compiled = torch.compile(attention, fullgraph=True)


def run(fn, args):
    q, k, v = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
    return {"out": out, "dq": dq, "dk": dk, "dv": dv}
