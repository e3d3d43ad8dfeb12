"""compile_error at inductor: CppCompileError: C++ compile error: error: operands to ‘?:’ have
different types ‘at::vec::CPU_CAPABILITY::VecMask<long int, 2>’ and …"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(length):
    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < length[b]

    return mask_mod


def attention(q, k, v, length):
    block_mask = create_block_mask(make_mask_mod(length), 2, None, 16, 16, device="cpu")
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(2, 1, 16, 16)
k = torch.randn(2, 1, 16, 16)
v = torch.randn(2, 1, 16, 16)
length = torch.randint(17, (2,))

compiled(q, k, v, length)
