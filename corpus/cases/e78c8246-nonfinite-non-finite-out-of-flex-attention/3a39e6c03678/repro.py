"""nonfinite at inductor: value of out: expected 0.204545526 at (0, 0, 0, 1), got nan at (0, 0,
0, 1) (512 of 1024 elements not finite)"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= 0


def attention(q, k, v, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 64, 16, dtype=torch.bfloat16)
k = torch.randn(1, 1, 64, 16, dtype=torch.bfloat16)
v = torch.randn(1, 1, 64, 16, dtype=torch.bfloat16)
block_mask = create_block_mask(mask_mod, None, None, 64, 64, device="cpu", BLOCK_SIZE=1)

out = compiled(q, k, v, block_mask)
assert out.isfinite().all(), "out is not finite"
