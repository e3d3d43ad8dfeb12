"""type_mixing at eager: RuntimeError: aten.add.Tensor got mixed torch.Tensor and DTensor, need
to convert all torch.Tensor to DTensor before calling distributed operators!"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
MESH = init_device_mesh("cpu", (2,))


def attention(q, k, v):
    with LocalTensorMode(2), sdpa_kernel(SDPBackend.MATH):
        q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        k = DTensor.from_local(k, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        v = DTensor.from_local(v, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.full_tensor().reconcile()


torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)

attention(q, k, v)
