"""hang: Hang: the ranks wait for one another

torchrun --nproc-per-node 2 repro.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Shard

dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))


def attention(q, k, v):
    q, k, v = (
        DTensor.from_local(t, MESH).redistribute(MESH, [Shard(2)]).to_local() for t in (q, k, v)
    )
    k, v = (DTensor.from_local(t, MESH, [Shard(2)]) for t in (k, v))
    k, v = (t.full_tensor(grad_placements=[Partial()]) for t in (k, v))
    out = F.scaled_dot_product_attention(q, k, v)
    return DTensor.from_local(
        out, MESH, [Shard(2)], shape=torch.Size((1, 1, 1, 16)), stride=(16, 16, 16, 1)
    ).full_tensor()


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 1, 16)
k, v = (torch.randn(1, 1, 16, 16).requires_grad_() for _ in range(2))

out = compiled(q, k, v)
dout = torch.randn(out.shape, dtype=out.dtype)
dk, dv = torch.autograd.grad(out, (k, v), dout)
