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
for name in ("_flash_attn_varlen_forward",):
    operator = getattr(flash_attn_interface, name)
    operator.register_kernel("cpu")(operator._init_fn)
# Its adapters, which are not called here, want a transformers of before 5.
sys.modules["ring_flash_attn.adapters"] = Mock()
ring_flash_attn = importlib.import_module("ring_flash_attn")

MESH = dist.init_device_mesh("cpu", (2,))
cu_seqlens = torch.tensor([0, 4, 12, 24], dtype=torch.int32)
*cuts, local_k_slice = ring_flash_attn.llama3_flash_attn_prepare_cu_seqlens(
    cu_seqlens, True, dist.get_rank(), 2
)


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 4, 24, 16, dtype=torch.float16)
    k = torch.randn(1, 2, 24, 16, dtype=torch.float16)
    v = torch.randn(1, 2, 24, 16, dtype=torch.float16)
    return q, k, v


def attention(q, k, v):
    q, k, v = (DTensor.from_local(t.transpose(1, 2), MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(1)]).to_local() for t in (q, k, v))
    out = ring_flash_attn.llama3_flash_attn_varlen_func(
        q[0], k[0], v[0], *cuts, 1, local_k_slice, causal=True
    )[None]
    return DTensor.from_local(out, MESH, [Shard(1)]).full_tensor().transpose(1, 2)


def reference(q, k, v):
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = 0.25 * (q @ k.mT)
    row = torch.bucketize(torch.arange(24), cu_seqlens[1:], right=True)
    scores = scores.masked_fill(
        (row[:, None] != row) | torch.ones(24, 24, dtype=torch.bool).triu(1), float("-inf")
    )
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
