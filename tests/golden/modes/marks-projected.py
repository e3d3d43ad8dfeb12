import torch
import torch.nn.functional as F


def inputs():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 16).requires_grad_()
    context = torch.randn(2, 12, 16).requires_grad_()
    wq = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wk = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wv = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wo = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    torch._dynamo.mark_dynamic(context, 1)
    return x, context, wq, wk, wv, wo


def attention(x, context, wq, wk, wv, wo):
    q = F.linear(x, wq).unflatten(-1, (2, 8)).transpose(1, 2)
    k = F.linear(context, wk).unflatten(-1, (2, 8)).transpose(1, 2)
    v = F.linear(context, wv).unflatten(-1, (2, 8)).transpose(1, 2)
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    probs = F.softmax(scores, dim=-1)
    return F.linear(torch.matmul(probs, v).transpose(1, 2).flatten(2), wo)


def reference(x, context, wq, wk, wv, wo):
    q = F.linear(x, wq).unflatten(-1, (2, 8)).transpose(1, 2)
    k = F.linear(context, wk).unflatten(-1, (2, 8)).transpose(1, 2)
    v = F.linear(context, wv).unflatten(-1, (2, 8)).transpose(1, 2)
    scores = 8 ** -0.5 * (q @ k.mT)
    return F.linear((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), wo)


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    x, context, wq, wk, wv, wo = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dx, dcontext, dwq, dwk, dwv, dwo = torch.autograd.grad(out, (x, context, wq, wk, wv, wo), dout)
    return {
        "out": out, "dx": dx, "dcontext": dcontext, "dwq": dwq, "dwk": dwk, "dwv": dwv, "dwo": dwo
    }
