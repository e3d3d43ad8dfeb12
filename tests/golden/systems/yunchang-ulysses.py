import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard
from yunchang import LongContextAttention, set_seq_parallel_pg
from yunchang.kernels import AttnType

dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))
set_seq_parallel_pg(2, 1, dist.get_rank(), 2)
attend = LongContextAttention(ring_impl_type="basic", attn_type=AttnType.TORCH_MATH)


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    return q, k, v


def attention(q, k, v):
    q, k, v = (DTensor.from_local(t.transpose(1, 2), MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(1)]).to_local() for t in (q, k, v))
    out = attend(q, k, v)
    return DTensor.from_local(out, MESH, [Shard(1)]).full_tensor().transpose(1, 2)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
