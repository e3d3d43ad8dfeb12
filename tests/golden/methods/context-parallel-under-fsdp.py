import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.distributed.tensor.experimental._context_parallel as cp
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import parallelize_module


def inputs():
    torch.manual_seed(0)
    x = torch.randn(1, 8, 16).requires_grad_()
    wq = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wk = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wv = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    wo = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    return x, wq, wk, wv, wo


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))
cp._enable_context_parallel_dispatcher()
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


def shared_attention(q, k, v):
    return attend(q, k, v)


class Block(torch.nn.Module):
    def __init__(self, *weights):
        super().__init__()
        self.weights = torch.nn.ParameterList(w.detach().clone() for w in weights)

    def forward(self, x):
        wq, wk, wv, wo = self.weights
        q = F.linear(x, wq).unflatten(-1, (2, 8)).transpose(1, 2)
        k = F.linear(x, wk).unflatten(-1, (2, 8)).transpose(1, 2)
        v = F.linear(x, wv).unflatten(-1, (2, 8)).transpose(1, 2)
        out = shared_attention(q, k, v)
        return F.linear(out.transpose(1, 2).flatten(2), wo)


class Wrapped(torch.autograd.Function):
    """The module, with gradients of its weights as of arguments."""

    @staticmethod
    def forward(ctx, x, *weights):
        with torch.enable_grad():
            ctx.module, ctx.x = fully_shard(Block(*weights), mesh=MESH), x.detach().requires_grad_()
            ctx.out = ctx.module(ctx.x)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, dout):
        ctx.out.backward(dout)
        return ctx.x.grad, *(2 * w.grad.full_tensor() for w in ctx.module.parameters())


def attention(x, wq, wk, wv, wo):
    x = DTensor.from_local(x, MESH).redistribute(MESH, [Shard(1)]).to_local()
    out = Wrapped.apply(x, wq, wk, wv, wo)
    return DTensor.from_local(out, MESH, [Shard(1)]).full_tensor()


def reference(x, wq, wk, wv, wo):
    q = F.linear(x, wq).unflatten(-1, (2, 8)).transpose(1, 2)
    k = F.linear(x, wk).unflatten(-1, (2, 8)).transpose(1, 2)
    v = F.linear(x, wv).unflatten(-1, (2, 8)).transpose(1, 2)
    scores = 8 ** -0.5 * (q @ k.mT)
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return F.linear((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), wo)


def run(fn, args):
    x, wq, wk, wv, wo = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dx, dwq, dwk, dwv, dwo = torch.autograd.grad(out, (x, wq, wk, wv, wo), dout)
    return {"out": out, "dx": dx, "dwq": dwq, "dwk": dwk, "dwv": dwv, "dwo": dwo}
