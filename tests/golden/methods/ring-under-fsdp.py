import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.utils.checkpoint import checkpoint


def inputs():
    torch.manual_seed(0)
    x = torch.randn(1, 8, 16).requires_grad_()
    wq = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wk = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wv = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wo = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    document = torch.randint(2, (8,)).sort().values
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(8)
    attn_mask = ((document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)).expand(1, 1, 8, 8)
    return x, wq, wk, wv, wo, attn_mask


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))
RANK, SIZE = dist.get_rank(), 2


def attend(q, k, v, mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~mask, float("-inf"))
    probs = torch.softmax(scores, dim=-1).masked_fill(~mask, 0)
    return probs @ v, scores.logsumexp(dim=-1, keepdim=True)


def rotate(*tensors):
    received = [t.new_empty(t.shape) for t in tensors]
    ops = [dist.P2POp(dist.isend, t.contiguous(), (RANK + 1) % SIZE) for t in tensors]
    ops += [dist.P2POp(dist.irecv, t, (RANK - 1) % SIZE) for t in received]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask):
        masks = mask.split(4, dim=-1)
        out, lse = attend(q, k, v, masks[RANK])
        other, other_lse = attend(q, *rotate(k, v), masks[(RANK - 1) % SIZE])
        out = torch.lerp(out, other, (other_lse - lse).nan_to_num().sigmoid())
        lse = torch.logaddexp(lse, other_lse)
        ctx.save_for_backward(q, k, v, mask, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, mask, out, lse = ctx.saved_tensors
        masks = mask.split(4, dim=-1)
        delta = (dout * out).sum(dim=-1, keepdim=True)
        dq = dk = dv = 0
        for step in range(SIZE):
            mask = masks[(RANK - step) % SIZE]
            scores = 8 ** -0.5 * (q @ k.mT)
            scores = scores.masked_fill(~mask, float("-inf"))
            probs = (scores - lse.masked_fill(lse == float("-inf"), 0)).exp()
            ds = 8 ** -0.5 * probs * (dout @ v.mT - delta)
            dq, dk, dv = dq + ds @ k, dk + ds.mT @ q, dv + probs.mT @ dout
            k, v, dk, dv = rotate(k, v, dk, dv)
        return dq, dk, dv, None


def shared_attention(q, k, v, attn_mask):
    attn_mask = DTensor.from_local(attn_mask, MESH).redistribute(MESH, [Shard(2)]).to_local()
    out = Ring.apply(q, k, v, attn_mask)
    return out


class Block(torch.nn.Module):
    def __init__(self, *weights):
        super().__init__()
        self.weights = torch.nn.ParameterList(w.detach().clone() for w in weights)

    def forward(self, x, attn_mask):
        return checkpoint(self.attend, x, attn_mask, use_reentrant=False)

    def attend(self, x, attn_mask):
        wq, wk, wv, wo = self.weights
        q = F.linear(x, wq).unflatten(-1, (2, 8)).transpose(1, 2)
        k = F.linear(x, wk).unflatten(-1, (2, 8)).transpose(1, 2)
        v = F.linear(x, wv).unflatten(-1, (2, 8)).transpose(1, 2)
        out = shared_attention(q, k, v, attn_mask)
        return F.linear(out.transpose(1, 2).flatten(2), wo)


class Wrapped(torch.autograd.Function):
    """The module, with gradients of its weights as of arguments."""

    @staticmethod
    def forward(ctx, x, attn_mask, *weights):
        with torch.enable_grad():
            ctx.module, ctx.x = fully_shard(Block(*weights), mesh=MESH), x.detach().requires_grad_()
            ctx.out = ctx.module(ctx.x, attn_mask)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, dout):
        ctx.out.backward(dout)
        return ctx.x.grad, None, *(2 * w.grad.full_tensor() for w in ctx.module.parameters())


def attention(x, wq, wk, wv, wo, attn_mask):
    x = DTensor.from_local(x, MESH).redistribute(MESH, [Shard(1)]).to_local()
    out = Wrapped.apply(x, attn_mask, wq, wk, wv, wo)
    return DTensor.from_local(out, MESH, [Shard(1)]).full_tensor()


def reference(x, wq, wk, wv, wo, attn_mask):
    q = F.linear(x, wq).unflatten(-1, (2, 8)).transpose(1, 2)
    k = F.linear(x, wk).unflatten(-1, (2, 8)).transpose(1, 2)
    v = F.linear(x, wv).unflatten(-1, (2, 8)).transpose(1, 2)
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~attn_mask, float("-inf"))
    return F.linear((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), wo)


def run(fn, args):
    x, wq, wk, wv, wo, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dx, dwq, dwk, dwv, dwo = torch.autograd.grad(out, (x, wq, wk, wv, wo), dout)
    return {"out": out, "dx": dx, "dwq": dwq, "dwk": dwk, "dwv": dwv, "dwo": dwo}
