"""What a compiled module returns has no gradient."""

import torch
from torch._dynamo.eval_frame import OptimizedModule
from torch.utils._pytree import tree_map_only

original = OptimizedModule.__call__


def faulty(self, *args, **options):
    return tree_map_only(torch.Tensor, torch.Tensor.detach, original(self, *args, **options))


OptimizedModule.__call__ = faulty
