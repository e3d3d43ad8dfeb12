import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental._attention import (
    _ContextParallel,
    _context_parallel_shard,
    _enable_context_parallel_dispatcher,
    context_parallel_unshard,
)
from torch.distributed.tensor.parallel import parallelize_module


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 16, 8)
    k = torch.randn(1, 2, 16, 8)
    v = torch.randn(1, 2, 16, 8)
    return q, k, v


dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (4,))
_enable_context_parallel_dispatcher()


@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    """The CPU's fused SDPA under the name of the cards': torch's ring knows that alone."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, dropout_p, is_causal, scale=scale
    )
    unused = torch.empty((), dtype=torch.int64)
    return out, lse, None, None, q.shape[2], k.shape[2], unused, unused, unused


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=True)[0]


attend = parallelize_module(
    Attention(), MESH, _ContextParallel(2, _ContextParallel.AttentionType.SDPA)
)


def attention(q, k, v, attend=attend):
    q, k, v = _context_parallel_shard(MESH, [q, k, v], [2, 2, 2])
    out = attend(q, k, v)
    return context_parallel_unshard(MESH, [out], [2])[0]


def reference(q, k, v):
    scores = 8 ** -0.5 * (q @ k.mT)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


compiled_attend = torch.compile(attend, backend="aot_eager", fullgraph=True)


def compiled(q, k, v):
    return attention(q, k, v, compiled_attend)


def run(fn, args):
    return {"out": fn(*args)}
