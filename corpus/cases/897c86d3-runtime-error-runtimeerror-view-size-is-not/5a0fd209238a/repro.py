"""runtime_error at eager: RuntimeError: view size is not compatible with input tensor's size
and stride (at least one dimension spans across two contiguous subspaces). Use …

torchrun --nproc-per-node 2 repro.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (2,))


def attention(q, k, v):
    q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
    k = DTensor.from_local(k, MESH, [Replicate()])
    v = DTensor.from_local(v, MESH, [Replicate()])
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v).transpose(1, 2).contiguous()
    return out.full_tensor()


torch.manual_seed(0)
q = torch.randn(2, 2, 16, 16).requires_grad_()
k = torch.randn(2, 2, 16, 16)
v = torch.randn(2, 2, 16, 16)

out = attention(q, k, v)
(dq,) = torch.autograd.grad(out.sum(), q)
