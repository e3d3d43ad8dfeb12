"""runtime_error at eager: RuntimeError: Attempting to broadcast a dimension of length 16 at
-2! Mismatching argument at index 1 had torch.Size([1, 1, 16, 16]); but expected shape …

For NVIDIA H100 80GB HBM3: found by attnfuzz's virtual-sm90, not run on such a device yet."""

import torch
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel as cp
from torch.distributed.tensor.parallel import parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.set_default_device("cuda")

dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
MESH = dist.init_device_mesh("cuda", (2,))
cp._enable_context_parallel_dispatcher()


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True)[0]


style = cp._ContextParallel(2, cp._ContextParallel.AttentionType.SDPA)
attend = parallelize_module(Attention(), MESH, style)

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 32, 16, device="cpu").to("cuda") for _ in range(3))

q, k, v = cp._context_parallel_shard(MESH, [q, k, v], [2, 2, 2])
cp.context_parallel_unshard(MESH, [attend(q, k, v)], [2])[0]
torch.cuda.synchronize()
