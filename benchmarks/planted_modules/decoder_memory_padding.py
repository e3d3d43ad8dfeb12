"""A decoder layer takes no heed of memory_key_padding_mask where there is a memory_mask."""

import torch

original = torch.nn.TransformerDecoderLayer._mha_block


def faulty(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
    if attn_mask is not None:
        key_padding_mask = None
    return original(self, x, mem, attn_mask, key_padding_mask, is_causal)


torch.nn.TransformerDecoderLayer._mha_block = faulty
