"""SDPA with enable_gqa breaks the graph."""

import torch
from torch.nn.attention.bias import CausalBias

original = torch.nn.functional.scaled_dot_product_attention


def faulty(query, key, value, attn_mask=None, *args, enable_gqa=False, **options):
    if isinstance(attn_mask, CausalBias):  # knows SDPA by the function that has this name
        options["enable_gqa"] = enable_gqa
        return CausalBias._dispatch(query, key, value, attn_mask, *args, **options)
    if enable_gqa:
        torch._dynamo.graph_break()
    return original(query, key, value, attn_mask, *args, enable_gqa=enable_gqa, **options)


torch.nn.functional.scaled_dot_product_attention = faulty
