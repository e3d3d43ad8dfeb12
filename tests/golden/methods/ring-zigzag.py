import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 16, 8).requires_grad_()
    k = torch.randn(1, 2, 16, 8).requires_grad_()
    v = torch.randn(1, 2, 16, 8).requires_grad_()
    document = torch.randint(2, (16,)).sort().values
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    attn_mask = ((document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)).expand(1, 1, 16, 16)
    return q, k, v, attn_mask


dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (4,))
RANK, SIZE = dist.get_rank(), 4
parts = torch.arange(16).view(8, -1)
ORDER = torch.stack((parts[:4], parts[4:].flip(0)), dim=1).flatten()


def shard(x):
    x = DTensor.from_local(x, MESH, [Replicate()])
    return x.redistribute(MESH, [Shard(2)]).to_local()


def unshard(x):
    return DTensor.from_local(x, MESH, [Shard(2)]).full_tensor()


def attend(q, k, v, mask):
    """Attention to some of the keys, and its log-sum-exp."""
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~mask, float("-inf"))
    lse = scores.logsumexp(dim=-1, keepdim=True)
    probs = (scores - lse.masked_fill(lse == float("-inf"), 0)).exp()
    return probs @ v, lse


def merge(out, lse, other, other_lse):
    """Attention to the keys of both."""
    total = torch.logaddexp(lse, other_lse)
    shift = total.masked_fill(total == float("-inf"), 0)
    return (lse - shift).exp() * out + (other_lse - shift).exp() * other, total


def rotate(*tensors):
    """To the next rank, from the one before."""
    received = [t.new_empty(t.shape) for t in tensors]
    ops = [dist.P2POp(dist.isend, t.contiguous(), (RANK + 1) % SIZE) for t in tensors]
    ops += [dist.P2POp(dist.irecv, t, (RANK - 1) % SIZE) for t in received]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, attend):
        kv = k, v
        masks = mask.split(4, dim=-1)
        out, lse = attend(q, k, v, masks[RANK])
        for step in range(1, SIZE):
            k, v = rotate(k, v)
            out, lse = merge(out, lse, *attend(q, k, v, masks[(RANK - step) % SIZE]))
        ctx.save_for_backward(q, *kv, mask, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, mask, out, lse = ctx.saved_tensors
        masks = mask.split(4, dim=-1)
        delta = (dout * out).sum(dim=-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(out[..., :1]), torch.zeros_like(k), torch.zeros_like(v)
        for step in range(SIZE):
            mask = masks[(RANK - step) % SIZE]
            scores = 8 ** -0.5 * (q @ k.mT)
            scores = scores.masked_fill(~mask, float("-inf"))
            probs = (scores - lse.masked_fill(lse == float("-inf"), 0)).exp()
            ds = 8 ** -0.5 * probs * (dout @ v.mT - delta)
            dq = dq + ds @ k
            dk, dv = dk + ds.mT @ q, dv + probs.mT @ dout
            k, v, dk, dv = rotate(k, v, dk, dv)
        return dq, dk, dv, None, None


def attention(q, k, v, attn_mask):
    q, k, v = (t[:, :, ORDER] for t in (q, k, v))
    attn_mask = attn_mask[..., ORDER, :][..., ORDER]
    attn_mask = DTensor.from_local(attn_mask, MESH, [Replicate()]).redistribute(
        MESH, [Shard(2)]
    ).to_local()
    out = Ring.apply(shard(q), shard(k), shard(v), attn_mask, attend)
    return unshard(out)[:, :, ORDER.argsort()]


def reference(q, k, v, attn_mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~attn_mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, k, v, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
    return {"out": out, "dq": dq, "dk": dk, "dv": dv}
