"""compile_error at dynamo: TorchRuntimeError: RuntimeError when making fake tensor call"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(table):
    def mask_mod(b, h, q_idx, kv_idx):
        return table[b, 0] != 0

    return mask_mod


def attention(q, k, v, table):
    block_mask = create_block_mask(make_mask_mod(table), 1, None, 16, 16, device="cpu")
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.randint(2, (1, 1))

compiled(q, k, v, table)
