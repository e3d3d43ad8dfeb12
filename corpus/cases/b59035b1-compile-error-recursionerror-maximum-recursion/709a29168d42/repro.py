"""compile_error at aot_eager: RecursionError: maximum recursion depth exceeded while calling a
Python object"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.attention import SDPBackend, sdpa_kernel

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
MESH = init_device_mesh("cpu", (1,))


def attention(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        q = DTensor.from_local(q, MESH, [Replicate()])
        k = DTensor.from_local(k, MESH, [Replicate()])
        v = DTensor.from_local(v, MESH, [Replicate()])
        out = F.scaled_dot_product_attention(q, k, v)
        return out.full_tensor()


compiled = torch.compile(attention, backend="aot_eager", dynamic=True, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 32, 16)
k = torch.randn(1, 1, 17, 16).requires_grad_()
v = torch.randn(1, 1, 17, 16)

out = compiled(q, k, v)
dout = torch.randn(out.shape, dtype=out.dtype)
(dk,) = torch.autograd.grad(out, k, dout)
