"""hang at aot_eager: Hang: no progress in phase compile in 10 s

torchrun --nproc-per-node 4 repro.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (4,))


def attention(q, k, v):
    q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
    k = DTensor.from_local(k, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
    v = DTensor.from_local(v, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return out.full_tensor()


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
