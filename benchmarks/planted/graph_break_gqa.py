"""SDPA with enable_gqa breaks the graph."""

import torch

original = torch.nn.functional.scaled_dot_product_attention


def faulty(*args, enable_gqa=False, **options):
    if enable_gqa:
        torch._dynamo.graph_break()
    return original(*args, enable_gqa=enable_gqa, **options)


torch.nn.functional.scaled_dot_product_attention = faulty
