import torch
from torch.distributed.tensor import DTensor, Shard
from torchtitan.distributed.context_parallel import apply_cp_to_forward
from torchtitan.models.common.attention import ScaledDotProductAttention

MESH = torch.distributed.init_device_mesh("cpu", (2,))
inner_attention = ScaledDotProductAttention(ScaledDotProductAttention.Config())
apply_cp_to_forward([inner_attention], MESH)


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    return q, k, v


def attention(q, k, v):
    order = torch.stack(
        (torch.arange(24).view(4, -1), torch.arange(24).view(4, -1).flip(0)), dim=1
    )[:2].flatten()
    q, k, v = (DTensor.from_local(t.transpose(1, 2)[:, order], MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(1)]).to_local() for t in (q, k, v))
    out = inner_attention(q, k, v)
    out = DTensor.from_local(out, MESH, [Shard(1)]).full_tensor()
    return out[:, order.argsort()].transpose(1, 2)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
