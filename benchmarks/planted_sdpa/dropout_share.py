"""Dropout drops half of what it should, and scales what it keeps as it should."""

import torch
import torch.nn.functional as F

original = F.dropout


def faulty(input, p=0.5, training=True, inplace=False):
    if not training or p == 1:
        return original(input, p, training, inplace)
    return input * (torch.rand_like(input) >= p / 2) / (1 - p)


F.dropout = faulty
