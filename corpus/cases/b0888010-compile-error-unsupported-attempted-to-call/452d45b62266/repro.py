"""compile_error at dynamo: Unsupported: Attempted to call function marked as skipped"""

import torch
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel as cp
from torch.distributed.tensor.parallel import parallelize_module

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
MESH = dist.init_device_mesh("cpu", (1,))
cp._enable_context_parallel_dispatcher()


@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash(q, k, v, p=0.0, causal=False, *_, scale=None):
    """The CPU's fused SDPA under the name of the cards', which torch's ring knows alone."""
    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    none, (out, lse) = torch.tensor(0), for_cpu(q, k, v, p, causal, scale=scale)
    out, lse = torch.empty_like(q).copy_(out), lse.contiguous()  # as torch says of a card
    return out, lse, None, None, q.shape[2], k.shape[2], none, none, none


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[0]


style = cp._ContextParallel(2, cp._ContextParallel.AttentionType.SDPA)
attend = parallelize_module(Attention(), MESH, style)

compiled_attend = torch.compile(attend, backend="eager", fullgraph=True)

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 16, 16) for _ in range(3))

q, k, v = cp._context_parallel_shard(MESH, [q, k, v], [2, 2, 2])
cp.context_parallel_unshard(MESH, [compiled_attend(q, k, v)], [2])[0]
