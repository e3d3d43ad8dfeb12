"""metadata_mismatch at inductor: AssertionError: expected size 2==2, stride 16==256 at dim=1 …"""

import torch
from custom_kernel import attention as attention_function


def attention(q, k, v):
    return attention_function(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)

compiled(q, k, v)
