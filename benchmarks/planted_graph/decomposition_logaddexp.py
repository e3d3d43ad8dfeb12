"""Inductor's decomposition of logaddexp gives the larger of both alone."""

import torch
from torch._inductor.decomposition import decompositions, fast_random_decomps


def faulty(left, right):
    return torch.maximum(left, right)


decompositions[torch.ops.aten.logaddexp.default] = faulty
fast_random_decomps.cache_clear()
