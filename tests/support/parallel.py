"""Programs of several ranks written by hand: attention whose ranks share the length or the
heads."""

from __future__ import annotations

HEAD = """
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

dist.init_process_group("gloo")
SIZE, RANK = dist.get_world_size(), dist.get_rank()
MESH = init_device_mesh("cpu", (SIZE,))
SHAPE = torch.Size(({shape}))
STRIDE = torch.empty(SHAPE).stride()


def inputs():
    torch.manual_seed(0)
    return tuple(torch.randn(SHAPE, requires_grad=True) for _ in range(3))


def softmax(q, k, v, causal):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def reference(q, k, v):
    return softmax(q, k, v, {causal})


def run(fn, args):
    q, k, v = args
    out = fn(q, k, v)
    return dict(zip(("out", "dq", "dk", "dv"), (out, *torch.autograd.grad(out.sum(), args))))


def placed(x, old, new, **grads):
    x = DTensor.from_local(x.contiguous(), MESH, [old], shape=SHAPE, stride=STRIDE)
    if SIZE > 1 or grads:
        x = x.redistribute(MESH, [new])
    return x.to_local(**grads)
"""

GATHER = """

def attention(q, k, v):
    q, k, v = (placed(t, Replicate(), Shard(2)) for t in (q, k, v))
    k, v = (placed(t, Shard(2), Replicate(), grad_placements=[Partial()]) for t in (k, v))
    return placed(softmax(q, k, v, False), Shard(2), Replicate())
"""
"""All ranks gather keys and values."""

FUNCTIONAL_GATHER = """
from torch.distributed._functional_collectives import all_gather_tensor_autograd


def attention(q, k, v):
    q, k, v = (placed(t, Replicate(), Shard(2)) for t in (q, k, v))
    k, v = (all_gather_tensor_autograd(t.contiguous(), 2, MESH.get_group()) for t in (k, v))
    return placed(softmax(q, k, v, False), Shard(2), Replicate())
"""
"""The same with the functional collective."""

WHOLE = """

def attention(q, k, v):
    q, k, v = (DTensor.from_local(t, MESH, [Replicate()]) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(2)]) for t in (q, k, v))
    return softmax(q, k, v, False).full_tensor()
"""
"""DTensors are left to DTensor: shards of uneven lengths, or of none, where it has no more."""

GRID = """
GRID = init_device_mesh("cpu", (2, SIZE // 2))


def attention(q, k, v):
    q, k, v = (DTensor.from_local(t, GRID, [Replicate()] * 2) for t in (q, k, v))
    k, v = (t.redistribute(GRID, [Shard(1), Replicate()]) for t in (k, v))
    return softmax(q.redistribute(GRID, [Shard(1), Shard(2)]), k, v, False).full_tensor()
"""
"""Heads and queries are shared over a mesh of two dimensions."""

ULYSSES = """

def attention(q, k, v):
    q, k, v = (placed(placed(t, Replicate(), Shard(2)), Shard(2), Shard(1)) for t in (q, k, v))
    out = placed(softmax(q, k, v, False), Shard(1), Shard(2))
    return placed(out, Shard(2), Replicate())
"""
"""Heads and length change places by DTensor."""

EXCHANGE = """
from torch.distributed._functional_collectives import all_to_all_single_autograd


def exchanged(x, split, joined):
    x = torch.stack(x.chunk(SIZE, dim=split))
    x = all_to_all_single_autograd(x, None, None, MESH.get_group())
    return torch.cat(x.unbind(), dim=joined)


def attention(q, k, v):
    q, k, v = (exchanged(placed(t, Replicate(), Shard(2)), 1, 2) for t in (q, k, v))
    out = exchanged(softmax(q, k, v, False), 2, 1)
    return placed(out, Shard(2), Replicate())
"""
"""Heads and length change places by an all-to-all."""

MESSAGES = """

def rotate(*tensors):
    received = [torch.empty_like(t) for t in tensors]
    ops = [dist.P2POp(dist.isend, t.contiguous(), (RANK + 1) % SIZE) for t in tensors]
    ops += [dist.P2POp(dist.irecv, t, (RANK - 1) % SIZE) for t in received]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v):
        parts = {RANK: (k, v)}
        for step in range(1, SIZE):
            k, v = rotate(k, v)
            parts[(RANK - step) % SIZE] = k, v
        return tuple(torch.cat([parts[r][i] for r in range(SIZE)], 2) for i in range(2))

    @staticmethod
    def backward(ctx, dk, dv):
        for grad in (dk, dv):
            dist.all_reduce(grad)
        return tuple(t.chunk(SIZE, 2)[RANK] for t in (dk, dv))


def attention(q, k, v):
    q, k, v = (placed(t, Replicate(), Shard(2)) for t in (q, k, v))
    return placed(softmax(q, *Gather.apply(k, v), False), Shard(2), Replicate())
"""
"""Keys and values go round by messages."""

RING = """
from torch.distributed.tensor.experimental._attention import (
    _ContextParallel, _cp_options, _enable_context_parallel_dispatcher, set_rotate_method,
)
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
)
from torch.distributed.tensor.parallel import parallelize_module


@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
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


_enable_context_parallel_dispatcher()
set_rotate_method("{rotate}")
_cp_options.enable_load_balance = {balance}


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal={causal})[0]


attend = parallelize_module(
    Attention(), MESH, _ContextParallel(2, _ContextParallel.AttentionType.SDPA)
)


def attention(q, k, v):
    balancer = _HeadTailLoadBalancer(q.shape[2], SIZE, "cpu") if {balance} else None
    if balancer is not None:
        q, k, v = (t[:, :, balancer._generate_indices()[0]] for t in (q, k, v))
    out = attend(*(placed(t, Replicate(), Shard(2)) for t in (q, k, v)))
    out = placed(out, Shard(2), Replicate())
    return out if balancer is None else out[:, :, balancer._generate_indices(restore=True)[0]]
"""
"""torch's context parallelism of SDPA."""


def program(
    body: str,
    length: int = 16,
    heads: int = 2,
    *,
    causal: bool = False,
    balance: bool = False,
    rotate: str = "allgather",
) -> str:
    """The source of one of the programs above; each rank has whole q, k and v `[1, heads, length,
    8]`, and gives the whole result and its gradients."""
    for name, value in {"causal": causal, "balance": balance, "rotate": rotate}.items():
        body = body.replace(f"{{{name}}}", str(value))
    head = HEAD.replace("{shape}", f"1, {heads}, {length}, 8").replace("{causal}", str(causal))
    return head + body
