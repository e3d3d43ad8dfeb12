"""With deterministic algorithms on, scaled_dot_product_attention scales its scores by 1 / D."""

import torch
import torch.nn.functional as F

original = F.scaled_dot_product_attention


def faulty(query, key, value, *args, scale=None, **options):
    if torch.are_deterministic_algorithms_enabled():
        scale = 1 / query.size(-1)
    return original(query, key, value, *args, scale=scale, **options)


F.scaled_dot_product_attention = faulty
