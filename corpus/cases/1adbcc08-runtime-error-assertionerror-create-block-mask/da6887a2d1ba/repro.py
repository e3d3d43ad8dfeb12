"""runtime_error: AssertionError: create-block_mask requires a mask_mod function! Got <bound
method MaskMod.mask_mod of <attention_program.MaskMod object at 0x7f9c96d99c10>>"""

from torch.nn.attention.flex_attention import create_block_mask


class MaskMod:
    def mask_mod(self, b, h, q_idx, kv_idx):
        return q_idx >= kv_idx


block_mask = create_block_mask(MaskMod().mask_mod, None, None, 16, 16, device="cpu")
