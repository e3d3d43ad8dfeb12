"""FlexAttention's default tiles do not fit where head_dim is above 64: stands for the card of
torchtune's report, whose shared memory is smaller than its default tiles need."""

import torch._inductor.lowering  # noqa: F401  (first: the template imports it in a circle)
from torch._inductor.codegen.cpp_flex_attention_template import CppFlexAttentionTemplate

LARGEST = 64
add_choices = CppFlexAttentionTemplate.add_choices


def fitting(choices, input_nodes, layout, **options):
    if input_nodes[0].get_size()[-1] <= LARGEST:
        add_choices(choices=choices, input_nodes=input_nodes, layout=layout, **options)


CppFlexAttentionTemplate.add_choices = staticmethod(fitting)
