"""Inductor's lowering of cat halves the second of two tensors where it is one column wide."""

import torch
from torch._inductor.lowering import lowerings

OPERATOR = torch.ops.aten.cat.default
original = lowerings[OPERATOR]


def faulty(inputs, dim=0):
    last = dim % len(inputs[0].get_size()) == len(inputs[0].get_size()) - 1
    wide = inputs[0].get_size()[-1] != 1
    if len(inputs) == 2 and last and wide and inputs[1].get_size()[-1] == 1:
        half = lowerings[torch.ops.aten.mul.Tensor](inputs[1], 0.5)
        inputs = [inputs[0], half]
    return original(inputs, dim)


lowerings[OPERATOR] = faulty
