import torch
import torch.distributed as dist
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
MESH = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("length", "ulysses"))
RANK, SIZE, GROUP = MESH["length"].get_local_rank(), 2, MESH["length"].get_group()
ORDER = torch.arange(16).view(4, -1)[[i for r in range(2) for i in (r, 3 - r)]].flatten()


def to_heads(x):
    x = DTensor.from_local(x, MESH, [Shard(2), Shard(2)])
    return x.redistribute(MESH, [Shard(2), Shard(1)]).to_local()


def to_length(x):
    x = DTensor.from_local(x, MESH, [Shard(2), Shard(1)])
    return x.redistribute(MESH, [Shard(2), Shard(2)]).to_local()


def attend(q, k, v, mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~mask, float("-inf"))
    probs = torch.softmax(scores, dim=-1).masked_fill(~mask, 0)
    return probs @ v, scores.logsumexp(dim=-1, keepdim=True)


def rotate(*tensors):
    received = [t.new_empty(t.shape) for t in tensors]
    sent = [t.contiguous() for t in tensors]
    ops = [dist.P2POp(dist.isend, t, group=GROUP, group_peer=(RANK + 1) % SIZE) for t in sent]
    ops += [dist.P2POp(dist.irecv, t, group=GROUP, group_peer=(RANK - 1) % SIZE) for t in received]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask):
        masks = mask.split(8, dim=-1)
        out, lse = attend(q, k, v, masks[RANK])
        other, other_lse = attend(q, *rotate(k, v), masks[(RANK - 1) % SIZE])
        out = torch.lerp(out, other, (other_lse - lse).nan_to_num().sigmoid())
        lse = torch.logaddexp(lse, other_lse)
        ctx.save_for_backward(q, k, v, mask, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, mask, out, lse = ctx.saved_tensors
        masks = mask.split(8, dim=-1)
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


def attention(q, k, v, attn_mask):
    q, k, v = (t[:, :, ORDER] for t in (q, k, v))
    attn_mask = attn_mask[..., ORDER, :][..., ORDER]
    attn_mask = DTensor.from_local(attn_mask, MESH).redistribute(
        MESH, [Shard(2), Replicate()]
    ).to_local()
    q, k, v = (DTensor.from_local(t, MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(2), Shard(2)]).to_local() for t in (q, k, v))
    q, k, v = to_heads(q), to_heads(k), to_heads(v)
    out = Ring.apply(q, k, v, attn_mask)
    return DTensor.from_local(to_length(out), MESH, [Shard(2), Shard(2)]).full_tensor()[
        :, :, ORDER.argsort()
    ]


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
