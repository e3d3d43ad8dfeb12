"""A compiled function returns contiguous tensors whatever the strides of the eager result."""

import torch
from torch.utils._pytree import tree_map_only

original = torch.compile


def faulty(function=None, **options):
    if function is None:  # as a decorator
        return lambda function: faulty(function, **options)
    compiled = original(function, **options)
    return lambda *args: tree_map_only(torch.Tensor, torch.Tensor.contiguous, compiled(*args))


torch.compile = faulty
