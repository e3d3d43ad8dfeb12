"""hang: Hang: the ranks wait for one another

torchrun --nproc-per-node 2 repro.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.distributed.tensor import DTensor, Partial

dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))
RANK, LENGTHS = dist.get_rank(), [0, 2]


def gather(x):
    """All of k or v; on the way all parts are as long as the longest."""
    x = F.pad(x, (0, 0, 0, max(LENGTHS) - x.shape[2])).contiguous()
    x = all_gather_tensor_autograd(x, 2, MESH.get_group())
    return torch.cat(
        [part[:, :, :length] for part, length in zip(x.chunk(2, dim=2), LENGTHS)], dim=2
    )


def attention(q, k, v):
    q, k, v = (DTensor.from_local(t, MESH).to_local(grad_placements=[Partial()]) for t in (q, k, v))
    q, k, v = (t.split(LENGTHS, dim=2)[RANK] for t in (q, k, v))
    k, v = gather(k), gather(v)
    out = F.scaled_dot_product_attention(q, k, v)
    return DTensor.from_local(
        F.pad(out, (0, 0, sum(LENGTHS[:RANK]), sum(LENGTHS[RANK + 1 :]))), MESH, [Partial()]
    ).full_tensor()


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 2, 16)
k, v = (torch.randn(1, 1, 2, 16).requires_grad_() for _ in range(2))

out = compiled(q, k, v)
dout = torch.randn(out.shape, dtype=out.dtype)
dk, dv = torch.autograd.grad(out, (k, v), dout)
