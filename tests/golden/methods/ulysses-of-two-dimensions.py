import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Replicate, Shard


def inputs():
    torch.manual_seed(0)
    q = torch.randn(4, 4, 8, 8).requires_grad_()
    k = torch.randn(4, 4, 8, 8).requires_grad_()
    v = torch.randn(4, 4, 8, 8).requires_grad_()
    document = torch.randint(2, (4, 8)).sort().values
    b = torch.arange(4)[:, None, None, None]
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(8)
    attn_mask = (q_idx >= kv_idx) & (document[b, q_idx] == document[b, kv_idx])
    return q, k, v, attn_mask


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("data", "tensor", "length"))


def to_heads(x):
    x = DTensor.from_local(x, MESH, [Shard(0), Shard(1), Shard(2)])
    return x.redistribute(MESH, [Shard(0), Shard(1), Shard(1)]).to_local()


def attention(q, k, v, attn_mask):
    q, k, v = (DTensor.from_local(t, MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(0), Shard(1), Shard(2)]).to_local() for t in (q, k, v))
    q, k, v = to_heads(q), to_heads(k), to_heads(v)
    attn_mask = DTensor.from_local(attn_mask, MESH).redistribute(
        MESH, [Shard(0), Replicate(), Replicate()]
    ).to_local()
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
    out = DTensor.from_local(out, MESH, [Shard(0), Shard(1), Shard(1)])
    out = out.redistribute(MESH, [Shard(0), Shard(1), Shard(2)]).to_local()
    return DTensor.from_local(out, MESH, [Shard(0), Shard(1), Shard(2)]).full_tensor()


def reference(q, k, v, attn_mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~attn_mask, float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)


def run(fn, args):
    q, k, v, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
    return {"out": out, "dq": dq, "dk": dk, "dv": dv}
