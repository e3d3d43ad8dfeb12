"""compile_error at dynamo: TorchRuntimeError: RuntimeError: *bdim < tensor.dim() INTERNAL
ASSERT FAILED at 'PlumbingHelper.cpp':27, please report a bug to PyTorch."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(table):
    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < table[b, 0]

    return mask_mod


def attention(q, k, v, table):
    block_mask = create_block_mask(make_mask_mod(table), 2, None, 16, 16, device="cpu")
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(2, 1, 16, 16)
k = torch.randn(2, 1, 16, 16)
v = torch.randn(2, 1, 16, 16)
table = torch.randint(16, (2, 1))

compiled(q, k, v, table)
