"""A compiled function is given the float of its first call in every call."""

import torch

original = torch.compile


def faulty(function=None, **options):
    if function is None:  # as a decorator
        return lambda function: faulty(function, **options)
    compiled, first = original(function, **options), []

    def call(*args):
        floats = [value for value in args if isinstance(value, float)]
        first.extend(floats[: 1 - len(first)])
        return compiled(*(first[0] if isinstance(value, float) else value for value in args))

    return call


torch.compile = faulty
