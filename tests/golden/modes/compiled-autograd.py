import torch
import torch.nn.functional as F


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 8, 8).requires_grad_()
    k = torch.randn(2, 2, 12, 8).requires_grad_()
    v = torch.randn(2, 2, 12, 8).requires_grad_()
    return q, k, v


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def reference(q, k, v):
    scores = 8 ** -0.5 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)


def run(fn, args):
    q, k, v = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator, dtype=torch.float32).to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
    return {"out": out, "dq": dq, "dk": dk, "dv": dv}


def run_attention(fn, args):
    torch.set_default_dtype(torch.float64)
    try:
        return run(fn, args)
    finally:
        torch.set_default_dtype(torch.float32)


def run_compiled(fn, args):
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        return run_attention(fn, args)
