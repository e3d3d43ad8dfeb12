"""compile_error at dynamo: Unsupported: Reconstruction of FakeIdVariable"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(table):
    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx < table[q_idx]

    return mask_mod


BLOCK_MASKS = {}


def attention(q, k, v, table):
    mask_mod = make_mask_mod(table)
    key = id(mask_mod)
    if key not in BLOCK_MASKS:
        BLOCK_MASKS[key] = create_block_mask(mask_mod, None, None, 16, 16, device="cpu")
    block_mask = BLOCK_MASKS[key]
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.randint(2, (16,))

compiled(q, k, v, table)
