"""compile_error at aot_eager: RuntimeError: s0**2 (<class 'torch.SymInt'>, 139880192414736)is
not tracked with proxy for <torch.fx.experimental.proxy_tensor.PythonKeyTracer object at …"""

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
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
