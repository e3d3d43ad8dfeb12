"""wrong_result at inductor: out is off by 0.66, rounding explains 5.88e-06

torchrun --nproc-per-node 2 repro.py
"""

import torch
from torch.distributed.tensor import DTensor, Shard
from torchtitan.distributed.context_parallel import apply_cp_to_forward, cp_shard
from torchtitan.models.common.attention import (
    FlexAttention,
    create_attention_mask,
    get_causal_mask_mod,
)

MESH = torch.distributed.init_device_mesh("cpu", (2,))
inner_attention = FlexAttention(FlexAttention.Config())
apply_cp_to_forward([inner_attention], MESH)


def attention(q, k, v, block_mask):
    q, k, v = (DTensor.from_local(t.transpose(1, 2), MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(1)]).to_local() for t in (q, k, v))
    out = inner_attention(q, k, v, attention_masks=block_mask)
    return DTensor.from_local(out, MESH, [Shard(1)]).full_tensor().transpose(1, 2)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 256, 16) for _ in range(3))
block_mask = create_attention_mask(get_causal_mask_mod(), 1, None, 256, 256, device="cpu")
_, block_mask = cp_shard(MESH, (q.transpose(1, 2),), block_mask, None)

out = compiled(q, k, v, block_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
scores = scores.masked_fill(torch.ones(256, 256, dtype=torch.bool).triu(1), float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 5.88e-06, f"out is off by {error:.3g}"
