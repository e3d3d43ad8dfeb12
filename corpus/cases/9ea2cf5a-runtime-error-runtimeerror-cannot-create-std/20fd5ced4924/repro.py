"""runtime_error at inductor: RuntimeError: cannot create std::vector larger than max_size()"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= 0


def attention(q, k, v, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 144, 16)
k = torch.randn(1, 1, 144, 16)
v = torch.randn(1, 1, 144, 16)
block_mask = create_block_mask(mask_mod, None, None, 144, 257, device="cpu")._adjust(144, 144)

compiled(q, k, v, block_mask)
