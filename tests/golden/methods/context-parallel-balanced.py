import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental._attention import (
    _ContextParallel,
    _cp_options,
    _enable_context_parallel_dispatcher,
    set_rotate_method,
)
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
)
from torch.distributed.tensor.parallel import parallelize_module


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 16, 8).requires_grad_()
    k = torch.randn(1, 2, 16, 8).requires_grad_()
    v = torch.randn(1, 2, 16, 8).requires_grad_()
    return q, k, v


dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (4,))
_enable_context_parallel_dispatcher()
set_rotate_method("alltoall")
_cp_options.enable_load_balance = True
BALANCER = _HeadTailLoadBalancer(16, 4, "cpu")


@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    """The CPU's fused SDPA under the name of the cards': torch's ring knows that alone."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, dropout_p, is_causal, scale=scale
    )
    unused = torch.empty((), dtype=torch.int64)
    return out, lse, None, None, q.shape[2], k.shape[2], unused, unused, unused


@torch.library.impl("aten::_scaled_dot_product_flash_attention_backward", "CPU")
def flash_backward(dout, q, k, v, out, lse, _1, _2, _3, _4, p, is_causal, _5, _6, *, scale=None):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        dout, q, k, v, out, lse, p, is_causal, scale=scale
    )


def shard(x):
    """This rank's part of what every rank has."""
    x = DTensor.from_local(x, MESH, [Replicate()])
    return x.redistribute(MESH, [Shard(2)]).to_local()


def unshard(x):
    """All of it, of this rank's part."""
    x = DTensor.from_local(x, MESH, [Shard(2)])
    return x.full_tensor()


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=True)[0]


attend = parallelize_module(
    Attention(), MESH, _ContextParallel(2, _ContextParallel.AttentionType.SDPA)
)


def attention(q, k, v):
    order = BALANCER._generate_indices()[0]
    q, k, v = (shard(t[:, :, order]) for t in (q, k, v))
    back = BALANCER._generate_indices(restore=True)[0]
    return unshard(attend(q, k, v))[:, :, back]


def reference(q, k, v):
    scores = 8 ** -0.5 * (q @ k.mT)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, k, v = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout)
    return {"out": out, "dq": dq, "dk": dk, "dv": dv}
