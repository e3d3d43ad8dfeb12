"""BlockMask.as_tuple(flatten=False) gives the lengths of queries and keys in the wrong order."""

import torch.nn.attention.flex_attention as flex

original = flex.BlockMask.as_tuple


def faulty(self, flatten=True):
    parts = original(self, flatten)
    return parts if flatten else (parts[0][::-1], *parts[1:])


flex.BlockMask.as_tuple = faulty
