import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 4, 16, 16)
    k = torch.randn(1, 4, 16, 16)
    v = torch.randn(1, 4, 16, 16)
    document = torch.randint(2, (16,)).sort().values
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    mask = document[q_idx] == document[kv_idx]
    mask = torch.zeros(16, 16).masked_fill(~mask, float("-inf"))
    return q, k, v, mask


dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
MESH = init_device_mesh("cpu", (4,))


def attention(q, k, v, mask):
    with LocalTensorMode(4):
        q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
        k = DTensor.from_local(k, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        v = DTensor.from_local(v, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        mask = DTensor.from_local(mask, MESH, [Replicate()])
        scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
        scores = scores + mask
        probs = F.softmax(scores, dim=-1)
        out = torch.matmul(probs, v)
        return out.full_tensor().reconcile()


def reference(q, k, v, mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores + mask
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
