import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    return q, k, v


dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (2,))


def attention(q, k, v):
    q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
    k = DTensor.from_local(k, MESH, [Replicate()])
    v = DTensor.from_local(v, MESH, [Replicate()])
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return out.full_tensor()


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
