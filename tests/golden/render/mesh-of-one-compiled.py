import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.attention import SDPBackend, sdpa_kernel


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16).requires_grad_()
    k = torch.randn(1, 1, 16, 16).requires_grad_()
    v = torch.randn(1, 1, 16, 16).requires_grad_()
    return q, k, v


dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
MESH = init_device_mesh("cpu", (1,))


def attention(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        k = DTensor.from_local(k, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        v = DTensor.from_local(v, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.full_tensor()


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, fullgraph=True)


def run(fn, args):
    q, k, v = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
    return {"out": out, "dq": dq, "dk": dk, "dv": dv}
