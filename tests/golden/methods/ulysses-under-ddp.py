import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


def inputs():
    torch.manual_seed(0)
    x = torch.randn(1, 8, 32).requires_grad_()
    wq = (torch.randn(32, 32) / 32 ** 0.5).requires_grad_()
    wk = (torch.randn(32, 32) / 32 ** 0.5).requires_grad_()
    wv = (torch.randn(32, 32) / 32 ** 0.5).requires_grad_()
    wo = (torch.randn(32, 32) / 32 ** 0.5).requires_grad_()
    document = torch.randint(2, (8,)).sort().values
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(8)
    mask = (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)
    return x, wq, wk, wv, wo, mask


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))


def to_heads(x):
    x = DTensor.from_local(x, MESH, [Shard(2)])
    return x.redistribute(MESH, [Shard(1)]).to_local()


def shared_attention(q, k, v, mask):
    q, k, v = to_heads(q), to_heads(k), to_heads(v)
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    scores = scores.masked_fill(~mask, float("-inf"))
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    out = DTensor.from_local(out, MESH, [Shard(1)])
    out = out.redistribute(MESH, [Shard(2)]).to_local()
    return out


class Block(torch.nn.Module):
    def __init__(self, *weights):
        super().__init__()
        self.weights = torch.nn.ParameterList(w.detach().clone() for w in weights)

    def forward(self, x, mask):
        return checkpoint(self.attend, x, mask, use_reentrant=False)

    def attend(self, x, mask):
        wq, wk, wv, wo = self.weights
        q = F.linear(x, wq).unflatten(-1, (4, 8)).transpose(1, 2)
        k = F.linear(x, wk).unflatten(-1, (4, 8)).transpose(1, 2)
        v = F.linear(x, wv).unflatten(-1, (4, 8)).transpose(1, 2)
        out = shared_attention(q, k, v, mask)
        return F.linear(out.transpose(1, 2).flatten(2), wo)


class Wrapped(torch.autograd.Function):
    """The module, with gradients of its weights as of arguments."""

    @staticmethod
    def forward(ctx, x, mask, *weights):
        with torch.enable_grad():
            ctx.module, ctx.x = DistributedDataParallel(
                Block(*weights)
            ), x.detach().requires_grad_()
            ctx.out = ctx.module(ctx.x, mask)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, dout):
        ctx.out.backward(dout)
        return ctx.x.grad, None, *(2 * w.grad for w in ctx.module.parameters())


def attention(x, wq, wk, wv, wo, mask):
    x = DTensor.from_local(x, MESH).redistribute(MESH, [Shard(1)]).to_local()
    out = Wrapped.apply(x, mask, wq, wk, wv, wo)
    return DTensor.from_local(out, MESH, [Shard(1)]).full_tensor()


def reference(x, wq, wk, wv, wo, mask):
    q = F.linear(x, wq).unflatten(-1, (4, 8)).transpose(1, 2)
    k = F.linear(x, wk).unflatten(-1, (4, 8)).transpose(1, 2)
    v = F.linear(x, wv).unflatten(-1, (4, 8)).transpose(1, 2)
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~mask, float("-inf"))
    return F.linear((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), wo)


def run(fn, args):
    x, wq, wk, wv, wo, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dx, dwq, dwk, dwv, dwo = torch.autograd.grad(out, (x, wq, wk, wv, wo), dout)
    return {"out": out, "dx": dx, "dwq": dwq, "dwk": dwk, "dwv": dwv, "dwo": dwo}
