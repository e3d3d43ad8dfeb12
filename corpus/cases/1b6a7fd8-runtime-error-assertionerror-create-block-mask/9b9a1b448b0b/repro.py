"""runtime_error: AssertionError: create-block_mask requires a mask_mod function! Got <bound  …"""

import torch
from torch.nn.attention.flex_attention import create_block_mask


class MaskMod:
    def mask_mod(self, b, h, q_idx, kv_idx):
        return q_idx >= 0


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
block_mask = create_block_mask(MaskMod().mask_mod, None, None, 16, 16, device="cpu")
