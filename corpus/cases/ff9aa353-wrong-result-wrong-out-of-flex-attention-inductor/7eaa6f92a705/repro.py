"""crash at inductor: Signal SIGABRT: double free or corruption (!prev); malloc(): unaligned
tcache chunk detected"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(table):
    def mask_mod(b, h, q_idx, kv_idx):
        return table[q_idx][kv_idx] != 0

    return mask_mod


def attention(q, k, v, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.randint(2, (16, 16))
block_mask = create_block_mask(make_mask_mod(table), None, None, 16, 16, device="cpu")

compiled(q, k, v, block_mask)
