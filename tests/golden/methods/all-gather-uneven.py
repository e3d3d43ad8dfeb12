import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Shard


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 7, 8).requires_grad_()
    k = torch.randn(2, 2, 5, 8).requires_grad_()
    v = torch.randn(2, 2, 5, 8).requires_grad_()
    document = torch.randint(2, (7,)).sort().values
    q_idx = torch.arange(7)[:, None]
    kv_idx = torch.arange(5)
    mask = (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)
    return q, k, v, mask


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (4,))


def attention(q, k, v, mask):
    q, k, v = (
        DTensor.from_local(t, MESH).redistribute(MESH, [Shard(2)]).to_local() for t in (q, k, v)
    )
    k, v = (
        DTensor.from_local(
            t, MESH, [Shard(2)], shape=torch.Size((2, 2, 5, 8)), stride=(80, 40, 8, 1)
        ) for t in (k, v)
    )
    k, v = (t.full_tensor(grad_placements=[Partial()]) for t in (k, v))
    mask = DTensor.from_local(mask, MESH).redistribute(MESH, [Shard(0)]).to_local()
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    scores = scores.masked_fill(~mask, float("-inf"))
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return DTensor.from_local(
        out, MESH, [Shard(2)], shape=torch.Size((2, 2, 7, 8)), stride=(112, 56, 8, 1)
    ).full_tensor()


def reference(q, k, v, mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, k, v, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
    return {"out": out, "dq": dq, "dk": dk, "dv": dv}
