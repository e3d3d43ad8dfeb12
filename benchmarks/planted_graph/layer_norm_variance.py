"""Inductor's decomposition of layer_norm divides squares by one less than there are."""

import torch
from torch._inductor.decomposition import decompositions, fast_random_decomps

OPERATOR = torch.ops.aten.native_layer_norm.default
original = decompositions[OPERATOR]


def faulty(x, shape, weight, bias, eps):
    count = 1
    for size in shape:
        count *= size
    out, mean, rstd = original(x, shape, None, None, eps)
    factor = ((count - 1) / count) ** 0.5
    out = out * factor
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd * factor


decompositions[OPERATOR] = faulty
fast_random_decomps.cache_clear()
