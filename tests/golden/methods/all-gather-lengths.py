import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.distributed.tensor import DTensor, Partial


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 9, 8).requires_grad_()
    k = torch.randn(2, 2, 9, 8).requires_grad_()
    v = torch.randn(2, 2, 9, 8).requires_grad_()
    document = torch.randint(2, (9,)).sort().values
    q_idx = torch.arange(9)[:, None]
    kv_idx = torch.arange(9)
    mask = (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)
    return q, k, v, mask


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (3,))
RANK, LENGTHS = dist.get_rank(), [0, 2, 7]


def gather(x):
    """All of k or v; on the way all parts are as long as the longest."""
    x = F.pad(x, (0, 0, 0, max(LENGTHS) - x.shape[2])).contiguous()
    x = all_gather_tensor_autograd(x, 2, MESH.get_group())
    return torch.cat(
        [part[:, :, :length] for part, length in zip(x.chunk(3, dim=2), LENGTHS)], dim=2
    )


def attention(q, k, v, mask):
    q, k, v = (DTensor.from_local(t, MESH).to_local(grad_placements=[Partial()]) for t in (q, k, v))
    q, k, v = (t.split(LENGTHS, dim=2)[RANK] for t in (q, k, v))
    k, v = gather(k), gather(v)
    mask = mask.split(LENGTHS, dim=-2)[RANK]
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    scores = scores.masked_fill(~mask, float("-inf"))
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return DTensor.from_local(
        F.pad(out, (0, 0, sum(LENGTHS[:RANK]), sum(LENGTHS[RANK + 1 :]))), MESH, [Partial()]
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
