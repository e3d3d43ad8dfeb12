import torch
import torch.nn.functional as F


def inputs():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 32).requires_grad_()
    context = torch.randn(2, 12, 32).requires_grad_()
    wq = (torch.randn(32, 32) / 32 ** 0.5).requires_grad_()
    wk = (torch.randn(16, 32) / 32 ** 0.5).requires_grad_()
    wv = (torch.randn(16, 32) / 32 ** 0.5).requires_grad_()
    wo = (torch.randn(32, 32) / 32 ** 0.5).requires_grad_()
    angles = torch.arange(12)[:, None] * 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    cos, sin = angles.cos(), angles.sin()
    return x, context, wq, wk, wv, wo, cos, sin


def rope(x, cos, sin):
    """Rotate the two halves of the last dimension by each position's angles."""
    cos, sin = cos[: x.shape[-2]], sin[: x.shape[-2]]
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).to(x.dtype)


def attention(x, context, wq, wk, wv, wo, cos, sin):
    q = F.linear(x, wq).unflatten(-1, (4, 8)).transpose(1, 2)
    k = F.linear(context, wk).unflatten(-1, (2, 8)).transpose(1, 2)
    v = F.linear(context, wv).unflatten(-1, (2, 8)).transpose(1, 2)
    q, k = rope(q, cos, sin), rope(k, cos, sin)
    return F.linear(
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2), wo
    )


def reference(x, context, wq, wk, wv, wo, cos, sin):
    q = F.linear(x, wq).unflatten(-1, (4, 8)).transpose(1, 2)
    k = F.linear(context, wk).unflatten(-1, (2, 8)).transpose(1, 2)
    v = F.linear(context, wv).unflatten(-1, (2, 8)).transpose(1, 2)
    q, k = rope(q, cos, sin), rope(k, cos, sin)
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = 8 ** -0.5 * (q @ k.mT)
    return F.linear((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), wo)


def run(fn, args):
    x, context, wq, wk, wv, wo, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dx, dcontext, dwq, dwk, dwv, dwo = torch.autograd.grad(out, (x, context, wq, wk, wv, wo), dout)
    return {
        "out": out, "dx": dx, "dcontext": dcontext, "dwq": dwq, "dwk": dwk, "dwv": dwv, "dwo": dwo
    }
