"""A compiled function gives its first result again for other numbers of the same shapes."""

import torch
from torch.utils._pytree import tree_map_only

original = torch.compile


def faulty(function=None, **options):
    if function is None:  # as a decorator
        return lambda function: faulty(function, **options)
    compiled, kept = original(function, **options), {}

    def call(*args):
        leading = [tuple(t.shape) for t in args if isinstance(t, torch.Tensor)]
        if any(t.requires_grad for t in args if isinstance(t, torch.Tensor)):
            return compiled(*args)
        result = kept.setdefault(str(leading), None)
        if result is None:
            result = kept[str(leading)] = compiled(*args)
        return tree_map_only(torch.Tensor, torch.clone, result)

    return call


torch.compile = faulty
