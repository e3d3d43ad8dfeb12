"""wrong_result at inductor: out is off by 1.47, rounding explains 5.06e-06

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
    q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(0)])
    k = DTensor.from_local(k, MESH, [Replicate()]).redistribute(MESH, [Shard(0)])
    v = DTensor.from_local(v, MESH, [Replicate()]).redistribute(MESH, [Shard(0)])
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return out.full_tensor()


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16).requires_grad_()
v = torch.randn(1, 1, 16, 16).requires_grad_()

out = compiled(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 5.06e-06, f"out is off by {error:.3g}"
