"""compile_error at inductor: CppCompileError: C++ compile error: error: operands to ‘?:’ hav …"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx < h


def attention(q, k, v):
    block_mask = create_block_mask(mask_mod, None, 2, 16, 16, device="cpu")
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)

compiled(q, k, v)
