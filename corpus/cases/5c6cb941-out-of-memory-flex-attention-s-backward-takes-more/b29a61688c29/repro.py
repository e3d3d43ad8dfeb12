"""out_of_memory at inductor: OutOfResources: out of resource: shared memory, Required: 147456,
Hardware limit: 101376. Reducing block sizes or `num_stages` may help.

For NVIDIA A10: found by attnfuzz's virtual-sm86, not run on such a device yet."""

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.set_default_device("cuda")


def attention(q, k, v):
    return flex_attention(q, k, v, enable_gqa=True)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 3, 16, 144)
k = torch.randn(1, 1, 16, 144)
v = torch.randn(1, 1, 16, 144)

compiled(q, k, v)
torch.cuda.synchronize()
