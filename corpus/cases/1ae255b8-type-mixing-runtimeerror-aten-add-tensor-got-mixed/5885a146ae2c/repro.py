"""type_mixing at eager: RuntimeError: aten.add.Tensor got mixed torch.Tensor and DTensor, need
to convert all torch.Tensor to DTensor before calling distributed operators!

torchrun --nproc-per-node 2 repro.py
"""

import torch
from torch.distributed.tensor import DTensor, Shard
from torchtitan.distributed.context_parallel import apply_cp_to_forward
from torchtitan.models.common.attention import ScaledDotProductAttention

MESH = torch.distributed.init_device_mesh("cpu", (2,))
inner_attention = ScaledDotProductAttention(ScaledDotProductAttention.Config())
apply_cp_to_forward([inner_attention], MESH)


def attention(q, k, v):
    q, k, v = (DTensor.from_local(t.transpose(1, 2), MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(1)]).to_local() for t in (q, k, v))
    out = inner_attention(q, k, v)
    return DTensor.from_local(out, MESH, [Shard(1)]).full_tensor().transpose(1, 2)


torch.manual_seed(0)
q, k = (torch.randn(1, 1, 16, 16) for _ in range(2))
v = torch.randn(1, 1, 16, 1)

attention(q, k, v)
