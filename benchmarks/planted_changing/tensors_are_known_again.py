"""A compiled function gives its last result again where it is given the same tensors, though other
numbers were written into them."""

import weakref

import torch
from torch.utils._pytree import tree_map_only

original = torch.compile


def faulty(function=None, **options):
    if function is None:  # as a decorator
        return lambda function: faulty(function, **options)
    compiled, last = original(function, **options), {}

    def call(*args):
        query = args[0]
        if not isinstance(query, torch.Tensor) or query.requires_grad:
            return compiled(*args)
        if "query" not in last or last["query"]() is not query:
            last.update(query=weakref.ref(query), result=compiled(*args))
        return tree_map_only(torch.Tensor, torch.clone, last["result"])

    return call


torch.compile = faulty
