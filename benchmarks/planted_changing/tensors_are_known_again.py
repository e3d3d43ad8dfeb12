"""A compiled function gives its last result again where it is given the same tensors, though other
numbers were written into them. What has a gradient is computed again."""

import weakref

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

original = torch.compile


def trains(value):
    return isinstance(value, torch.Tensor) and value.requires_grad


def faulty(function=None, **options):
    if function is None:  # as a decorator
        return lambda function: faulty(function, **options)
    compiled, given, last = original(function, **options), [], []

    def call(*args):
        if torch.compiler.is_compiling():  # inside another one
            return compiled(*args)
        if given and [id(known()) for known in given] == [id(arg) for arg in args]:
            return tree_map_only(torch.Tensor, torch.clone, last[0])
        given.clear()
        result = compiled(*args)
        tensors = all(isinstance(arg, torch.Tensor) for arg in args)
        if tensors and not any(map(trains, tree_leaves((args, result)))):
            given.extend(map(weakref.ref, args))
            last[:] = [result]
        return result

    return call


torch.compile = faulty
