import os

os.environ["FLASH_ATTENTION_TRITON_AMD_ENABLE"] = "TRUE"
os.environ["TRITON_INTERPRET"] = "1"

import torch
import torch.distributed as dist
from flash_attn import flash_attn_interface
from torch.distributed.tensor import DTensor, Shard
from unittest.mock import Mock
import importlib
import sys

# flash_attn registers its operators for CUDA alone.
for name in ("_flash_attn_forward",):
    operator = getattr(flash_attn_interface, name)
    operator.register_kernel("cpu")(operator._init_fn)
# Its adapters, which are not called here, want a transformers of before 5.
sys.modules["ring_flash_attn.adapters"] = Mock()
ring_flash_attn = importlib.import_module("ring_flash_attn")

MESH = dist.init_device_mesh("cpu", (2,))


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 24, 16, dtype=torch.float16)
    k = torch.randn(2, 2, 24, 16, dtype=torch.float16)
    v = torch.randn(2, 2, 24, 16, dtype=torch.float16)
    return q, k, v


def attention(q, k, v):
    order = torch.stack(
        (torch.arange(24).view(4, -1), torch.arange(24).view(4, -1).flip(0)), dim=1
    )[:2].flatten()
    q, k, v = (DTensor.from_local(t.transpose(1, 2)[:, order], MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(1)]).to_local() for t in (q, k, v))
    out = ring_flash_attn.zigzag_ring_flash_attn_func(q, k, v, causal=True)
    out = DTensor.from_local(out, MESH, [Shard(1)]).full_tensor()
    return out[:, order.argsort()].transpose(1, 2)


def reference(q, k, v):
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
