"""With deterministic algorithms on, scaled_dot_product_attention scales its scores by 1 / D."""

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import CausalBias

original = F.scaled_dot_product_attention


def faulty(query, key, value, attn_mask=None, *args, scale=None, **options):
    if isinstance(attn_mask, CausalBias):  # knows SDPA by the function that has this name
        return CausalBias._dispatch(query, key, value, attn_mask, *args, scale=scale, **options)
    if torch.are_deterministic_algorithms_enabled():
        scale = 1 / query.size(-1)
    return original(query, key, value, attn_mask, *args, scale=scale, **options)


F.scaled_dot_product_attention = faulty
