"""Dropout multiplies what it keeps by 1 + p, not by 1 / (1 - p)."""

import torch
import torch.nn.functional as F

original = F.dropout


def faulty(input, p=0.5, training=True, inplace=False):
    if not training:
        return original(input, p, training, inplace)
    return input * (torch.rand_like(input) >= p) * (1 + p)


F.dropout = faulty
