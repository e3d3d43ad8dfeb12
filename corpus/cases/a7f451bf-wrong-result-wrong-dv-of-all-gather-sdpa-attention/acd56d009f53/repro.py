"""runtime_error at aot_eager: RuntimeError: element 0 of tensors does not require grad and
does not have a grad_fn"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.distributed.tensor import DTensor, Shard

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
MESH = dist.init_device_mesh("cpu", (1,))


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def attention(q, k, v, attend=attend):
    q, k, v = (
        DTensor.from_local(t, MESH).redistribute(MESH, [Shard(2)]).to_local() for t in (q, k, v)
    )
    k, v = (all_gather_tensor_autograd(t.contiguous(), 2, MESH.get_group()) for t in (k, v))
    out = attend(q, k, v)
    return DTensor.from_local(out, MESH, [Shard(2)]).full_tensor()


compiled_attend = torch.compile(attend, backend="aot_eager", fullgraph=True)


def compiled(q, k, v):
    return attention(q, k, v, compiled_attend)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16).requires_grad_()
v = torch.randn(1, 1, 16, 16)

out = compiled(q, k, v)
dout = torch.randn(out.shape, dtype=out.dtype)
(dk,) = torch.autograd.grad(out, k, dout)
