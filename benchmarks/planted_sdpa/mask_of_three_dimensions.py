"""SDPA called on tensors of three dimensions takes the first entry's mask for every entry."""

import torch.nn.functional as F
from torch.nn.attention.bias import CausalBias

original = F.scaled_dot_product_attention


def faulty(query, key, value, attn_mask=None, **options):
    if isinstance(attn_mask, CausalBias):  # knows SDPA by the function that has this name
        return CausalBias._dispatch(query, key, value, attn_mask, **options)
    if query.dim() == 3 and attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask[:1]
    return original(query, key, value, attn_mask=attn_mask, **options)


F.scaled_dot_product_attention = faulty
