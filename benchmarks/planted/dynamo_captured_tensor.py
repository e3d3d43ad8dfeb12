"""Dynamo raises when a flex_attention mod captures a tensor."""

import torch._dynamo.variables.higher_order_ops as hop

original = hop.FlexAttentionHigherOrderVariable.create_wrapped_node


def faulty(self, *args, **options):
    result = original(self, *args, **options)
    if result[1]:
        raise IndexError("captured tensor has no slot")
    return result


hop.FlexAttentionHigherOrderVariable.create_wrapped_node = faulty
