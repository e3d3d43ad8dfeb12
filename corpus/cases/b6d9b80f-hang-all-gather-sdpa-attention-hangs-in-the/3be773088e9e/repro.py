"""hang at inductor: Hang: all asleep in phase forward for 60 s

torchrun --nproc-per-node 2 repro.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Shard

dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))


def attention(q, k, v):
    size, stride = torch.Size((1, 1, 1, 16)), (16, 16, 16, 1)
    q, k, v = (
        DTensor.from_local(t, MESH).redistribute(MESH, [Shard(2)]).to_local() for t in (q, k, v)
    )
    k, v = (DTensor.from_local(t, MESH, [Shard(2)], shape=size, stride=stride) for t in (k, v))
    k, v = (t.full_tensor(grad_placements=[Partial()]) for t in (k, v))
    out = F.scaled_dot_product_attention(q, k, v)
    return DTensor.from_local(out, MESH, [Shard(2)], shape=size, stride=stride).full_tensor()


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 1, 16)
k = torch.randn(1, 1, 1, 16).requires_grad_()
v = torch.randn(1, 1, 1, 16)

out = compiled(q, k, v)
dout = torch.randn(out.shape, dtype=out.dtype)
(dk,) = torch.autograd.grad(out, k, dout)
