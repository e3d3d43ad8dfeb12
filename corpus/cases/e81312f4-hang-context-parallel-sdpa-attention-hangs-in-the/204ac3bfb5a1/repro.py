"""hang: Hang: the ranks wait for one another

torchrun --nproc-per-node 3 repro.py
"""

import torch
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel as cp
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import parallelize_module

dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (3,))
cp._enable_context_parallel_dispatcher()
cp.set_rotate_method("alltoall")
cp._cp_options.enable_load_balance = False


@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash(q, k, v, p=0.0, causal=False, *_, scale=None):
    """The CPU's fused SDPA under the name of the cards', which torch's ring knows alone."""
    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    none, (out, lse) = torch.tensor(0), for_cpu(q, k, v, p, causal, scale=scale)
    out, lse = torch.empty_like(q).copy_(out), lse.contiguous()  # as torch says of a card
    return out, lse, None, None, q.shape[2], k.shape[2], none, none, none


@torch.library.impl("aten::_scaled_dot_product_flash_attention_backward", "CPU")
def flash_backward(dout, q, k, v, out, lse, _1, _2, _3, _4, p, causal, *_, scale=None):
    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return for_cpu(dout, q, k, v, out, lse, p, causal, scale=scale)


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=True)[0]


style = cp._ContextParallel(2, cp._ContextParallel.AttentionType.SDPA)
attend = parallelize_module(Attention(), MESH, style)


def attention(q, k, v):
    q, k, v = (
        DTensor.from_local(t, MESH).redistribute(MESH, [Shard(2)]).to_local() for t in (q, k, v)
    )
    return DTensor.from_local(attend(q, k, v), MESH, [Shard(2)]).full_tensor()


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 18, 16).requires_grad_()
k, v = (torch.randn(1, 1, 18, 16) for _ in range(2))

out = compiled(q, k, v)
dout = torch.randn(out.shape, dtype=out.dtype)
(dq,) = torch.autograd.grad(out, q, dout)
