"""Inductor's lowering of unbind gives the second of three parts of dimension 3 for the third."""

import torch
from torch._inductor.lowering import lowerings

OPERATOR = torch.ops.aten.unbind.int
original = lowerings[OPERATOR]


def faulty(x, dim=0):
    parts = original(x, dim)
    return [parts[0], parts[1], parts[1]] if len(parts) == 3 and dim == 3 else parts


lowerings[OPERATOR] = faulty
