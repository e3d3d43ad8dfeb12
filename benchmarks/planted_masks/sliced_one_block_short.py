"""A BlockMask that is indexed by more than its batch loses one partial block of every row that has
several."""

import torch.nn.attention.flex_attention as flex

original = flex.BlockMask.__getitem__


def faulty(self, index):
    sliced = original(self, index)
    if isinstance(index, tuple):
        counts = sliced.kv_num_blocks
        sliced.kv_num_blocks = counts - (counts > 1).to(counts.dtype)
    return sliced


flex.BlockMask.__getitem__ = faulty
