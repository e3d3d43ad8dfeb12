import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 9, 8).requires_grad_()
    k = torch.randn(2, 2, 9, 8).requires_grad_()
    v = torch.randn(2, 2, 9, 8).requires_grad_()
    document = torch.randint(2, (9,)).sort().values
    q_idx = torch.arange(9)[:, None]
    kv_idx = torch.arange(9)
    attn_mask = ((document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)).expand(1, 1, 9, 9)
    return q, k, v, attn_mask


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (4,))
RANK, SIZE = dist.get_rank(), 4
LENGTHS = [3, 0, 5, 1]


def attend(q, k, v, mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~mask, float("-inf"))
    probs = torch.softmax(scores, dim=-1).masked_fill(~mask, 0)
    return probs @ v, scores.logsumexp(dim=-1, keepdim=True)


def rotate(step, *tensors):
    received = [
        t.new_empty((*t.shape[:2], LENGTHS[(RANK - step) % SIZE], t.shape[3])) for t in tensors
    ]
    ops = [dist.P2POp(dist.isend, t.contiguous(), (RANK + 1) % SIZE) for t in tensors]
    ops += [dist.P2POp(dist.irecv, t, (RANK - 1) % SIZE) for t in received]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask):
        kv = k, v
        masks = mask.split(LENGTHS, dim=-1)
        out, lse = attend(q, k, v, masks[RANK])
        for step in range(1, SIZE):
            k, v = rotate(step, k, v)
            other, other_lse = attend(q, k, v, masks[(RANK - step) % SIZE])
            out = torch.lerp(out, other, (other_lse - lse).nan_to_num().sigmoid())
            lse = torch.logaddexp(lse, other_lse)
        ctx.save_for_backward(q, *kv, mask, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, mask, out, lse = ctx.saved_tensors
        masks = mask.split(LENGTHS, dim=-1)
        delta = (dout * out).sum(dim=-1, keepdim=True)
        dq = dk = dv = 0
        for step in range(SIZE):
            mask = masks[(RANK - step) % SIZE]
            scores = 8 ** -0.5 * (q @ k.mT)
            scores = scores.masked_fill(~mask, float("-inf"))
            probs = (scores - lse.masked_fill(lse == float("-inf"), 0)).exp()
            ds = 8 ** -0.5 * probs * (dout @ v.mT - delta)
            dq, dk, dv = dq + ds @ k, dk + ds.mT @ q, dv + probs.mT @ dout
            k, v, dk, dv = rotate(step + 1, k, v, dk, dv)
        return dq, dk, dv, None


def attention(q, k, v, attn_mask):
    attn_mask = attn_mask.split(LENGTHS, dim=-2)[RANK]
    q, k, v = (DTensor.from_local(t, MESH).to_local(grad_placements=[Partial()]) for t in (q, k, v))
    q, k, v = (t.split(LENGTHS, dim=2)[RANK] for t in (q, k, v))
    out = Ring.apply(q, k, v, attn_mask)
    return DTensor.from_local(
        F.pad(out, (0, 0, sum(LENGTHS[:RANK]), sum(LENGTHS[RANK + 1 :]))), MESH, [Partial()]
    ).full_tensor()


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
