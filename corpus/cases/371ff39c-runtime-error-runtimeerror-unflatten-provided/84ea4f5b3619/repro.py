"""runtime_error at eager: RuntimeError: unflatten: Provided sizes [1, 2] don't multiply up to
the size of dim 0 (1) in the input tensor"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
MESH = init_device_mesh("cpu", (2,))


def attention(q, k, v):
    with LocalTensorMode(2):
        q = DTensor.from_local(q, MESH, [Replicate()])
        k = DTensor.from_local(k, MESH, [Replicate()])
        v = DTensor.from_local(v, MESH, [Replicate()]).redistribute(MESH, [Shard(1)])
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        scores = torch.bmm(q, k.transpose(-2, -1)) / 4.0
        probs = F.softmax(scores, dim=-1)
        out = torch.bmm(probs, v).unflatten(0, (1, 2))
        return out.full_tensor().reconcile()


torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)

with torch.inference_mode():
    attention(q, k, v)
