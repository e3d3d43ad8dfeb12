"""graph_break at dynamo: graph of attention: expected whole, got Unsupported method call"""

import torch
from opaque_kernel import attention as attention_function


def attention(q, k, v):
    return attention_function(q, k, v)


compiled = torch.compile(attention, backend="eager")

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
breaks = torch._dynamo.utils.counters["graph_break"]
assert not breaks, list(breaks)
