import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.tensor import DTensor, Shard


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 8, 16, 8).requires_grad_()
    k = torch.randn(1, 8, 16, 8).requires_grad_()
    v = torch.randn(1, 8, 16, 8).requires_grad_()
    document = torch.randint(2, (16,)).sort().values
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    mask = (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)
    return q, k, v, mask


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (4,))


def to_heads(x):
    x = torch.stack(x.chunk(4, dim=1))
    x = all_to_all_single_autograd(x, None, None, MESH.get_group())
    return torch.cat(x.unbind(), dim=2)


def attention(q, k, v, mask):
    q, k, v = (
        DTensor.from_local(t, MESH).redistribute(MESH, [Shard(2)]).to_local() for t in (q, k, v)
    )
    q, k, v = to_heads(q), to_heads(k), to_heads(v)
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    scores = scores.masked_fill(~mask, float("-inf"))
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    out = torch.stack(out.chunk(4, dim=2))
    out = all_to_all_single_autograd(out, None, None, MESH.get_group())
    out = torch.cat(out.unbind(), dim=1)
    return DTensor.from_local(out, MESH, [Shard(2)]).full_tensor()


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
