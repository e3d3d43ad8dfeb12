"""Dynamo reads through a null pointer where SDPA is left no back-end that is there, and refuses."""

import ctypes

import torch
import torch._dynamo.output_graph as output_graph
import torch.nn.functional as F

original = output_graph.OutputGraph.create_proxy


def faulty(self, kind, target, *args, **options):
    allowed = torch._C._get_math_sdp_enabled() or torch._C._get_flash_sdp_enabled()
    if target is F.scaled_dot_product_attention and not allowed:
        ctypes.string_at(0)
    return original(self, kind, target, *args, **options)


output_graph.OutputGraph.create_proxy = faulty
