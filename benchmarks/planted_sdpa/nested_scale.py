"""SDPA of nested tensors of more than two sequences takes a scale that is 3% too large."""

import torch

original = torch._scaled_dot_product_attention_math


def faulty(query, *args, scale=None, **options):
    if query.is_nested and query.size(0) > 2:
        scale = 1.03 * (query.size(-1) ** -0.5 if scale is None else scale)
    return original(query, *args, scale=scale, **options)


torch._scaled_dot_product_attention_math = faulty
