"""Inductor's decomposition of softmax ignores every dimension but the last."""

import torch
from torch._inductor.decomposition import decompositions, fast_random_decomps

OPERATOR = torch.ops.aten._softmax.default


def faulty(x, dim, half_to_float):
    shifted = x.float() if x.dtype != torch.float64 else x
    weights = (shifted - shifted.amax(-1, keepdim=True)).exp()
    result = weights / weights.sum(-1, keepdim=True)
    return result if half_to_float else result.to(x.dtype)


decompositions[OPERATOR] = faulty
fast_random_decomps.cache_clear()  # a copy of them all, made when something was compiled first
