"""create_block_mask takes blocks that are half full or more for full ones."""

import torch
import torch.nn.attention.flex_attention as flex

original = flex._convert_mask_to_block_mask


def faulty(mask, Q_BLOCK_SIZE, KV_BLOCK_SIZE, separate_full_blocks=False):
    partial, full = original(mask, Q_BLOCK_SIZE, KV_BLOCK_SIZE, separate_full_blocks)
    if full is not None:
        rows, columns = mask.shape[-2:]
        ragged = (0, -columns % KV_BLOCK_SIZE, 0, -rows % Q_BLOCK_SIZE)
        blocks = torch.nn.functional.pad(mask, ragged).float()
        blocks = blocks.unflatten(-1, (-1, KV_BLOCK_SIZE)).unflatten(-3, (-1, Q_BLOCK_SIZE))
        nearly = (blocks.mean((-3, -1)) >= 0.5).to(full.dtype)
        full, partial = full | nearly, partial & (1 - nearly)
    return partial, full


flex._convert_mask_to_block_mask = faulty
