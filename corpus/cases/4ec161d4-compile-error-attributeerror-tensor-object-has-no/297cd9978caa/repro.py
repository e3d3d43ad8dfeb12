"""compile_error at inductor: AttributeError: 'Tensor' object has no attribute 'get_dtype'"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

torch.set_default_device("cuda")


def make_mask_mod(table):
    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx < table[0]

    return mask_mod


def attention(q, k, v, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.randint(2, (1,))
block_mask = create_block_mask(make_mask_mod(table), None, None, 16, 16, device="cuda")

compiled(q, k, v, block_mask)
torch.cuda.synchronize()
