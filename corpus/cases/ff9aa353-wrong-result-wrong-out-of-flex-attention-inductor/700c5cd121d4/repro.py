"""runtime_error at inductor: RuntimeError: index out of bounds: 0 <= tmp7 < cur_qSplitSize"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(table):
    def mask_mod(b, h, q_idx, kv_idx):
        return (table[q_idx][kv_idx] != 0) & (kv_idx == 128)

    return mask_mod


def attention(q, k, v, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 144, 16)
k = torch.randn(1, 1, 144, 16)
v = torch.randn(1, 1, 144, 16)
table = torch.randint(2, (144, 144))
block_mask = create_block_mask(make_mask_mod(table), None, None, 144, 144, device="cpu")

compiled(q, k, v, block_mask)
