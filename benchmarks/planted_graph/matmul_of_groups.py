"""A matrix product in five dimensions, traced, takes the first group's right side for every one."""

import torch
from torch._C import DispatchKey

OPERATOR = torch.ops.aten.matmul.default
original = OPERATOR.py_kernels[DispatchKey.CompositeImplicitAutograd]


def faulty(left, right):
    if left.dim() == right.dim() == 5:
        right = right[:, :1].expand_as(right)
    return original(left, right)


OPERATOR.py_kernels[DispatchKey.CompositeImplicitAutograd] = faulty
OPERATOR._dispatch_cache.clear()
