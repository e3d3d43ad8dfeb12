import torch
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel as cp
from torch.distributed.tensor.parallel import parallelize_module


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 16, 8)
    k = torch.randn(1, 2, 16, 8)
    v = torch.randn(1, 2, 16, 8)
    return q, k, v


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (4,))
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
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=True)[0]


style = cp._ContextParallel(2, cp._ContextParallel.AttentionType.SDPA)
attend = parallelize_module(Attention(), MESH, style)


def attention(q, k, v, attend=attend):
    q, k, v = cp._context_parallel_shard(MESH, [q, k, v], [2, 2, 2])
    return cp.context_parallel_unshard(MESH, [attend(q, k, v)], [2])[0]


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
