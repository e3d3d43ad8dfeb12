"""runtime_error at eager: RuntimeError: aten.add_.Scalar: in-place operations that require
placement changes are not supported. The input has placement (Partial(avg),), but no valid …"""

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
        q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(3)])
        k = DTensor.from_local(k, MESH, [Replicate()]).redistribute(MESH, [Shard(3)])
        v = DTensor.from_local(v, MESH, [Replicate()])
        q, k = F.rms_norm(q, (16,), eps=1e-6), F.rms_norm(k, (16,), eps=1e-6)
        scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
        probs = F.softmax(scores, dim=-1)
        out = torch.matmul(probs, v)
        return out.full_tensor().reconcile()


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

attention(q, k, v)
