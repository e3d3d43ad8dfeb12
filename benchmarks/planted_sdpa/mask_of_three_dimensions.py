"""SDPA called on tensors of three dimensions takes the first entry's mask for every entry."""

import torch.nn.functional as F

original = F.scaled_dot_product_attention


def faulty(query, key, value, attn_mask=None, **options):
    if query.dim() == 3 and attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask[:1]
    return original(query, key, value, attn_mask=attn_mask, **options)


F.scaled_dot_product_attention = faulty
