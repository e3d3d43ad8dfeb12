"""runtime_error: IndexError: index 4 is out of bounds for dimension 3 with size 4"""

from torch.nn.attention.flex_attention import create_block_mask


def mask_mod(b, h, q_idx, kv_idx):
    return (kv_idx < 200) | (kv_idx >= 400)


block_mask = create_block_mask(mask_mod, None, None, 640, 640, device="cpu")._adjust(384, 384)
