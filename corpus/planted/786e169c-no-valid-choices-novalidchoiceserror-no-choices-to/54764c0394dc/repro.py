"""no_valid_choices at inductor: NoValidChoicesError: No choices to select. Provided reason: No
choices exist for backend. please consider adding ATEN into max_autotune_gemm_backends …

The fault is planted, by the function at the top; torch does not have it."""


def no_valid_choices():
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


no_valid_choices()

import torch
from torch.nn.attention.flex_attention import flex_attention


def attention(q, k, v):
    return flex_attention(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 128)
k = torch.randn(1, 1, 16, 128)
v = torch.randn(1, 1, 16, 128)

compiled(q, k, v)
