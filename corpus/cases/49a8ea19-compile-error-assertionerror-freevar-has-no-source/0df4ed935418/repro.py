"""compile_error at dynamo: AssertionError: Freevar has no source: node.op=call_function
node.name=getattr_1 -- this likely means a function argument was not included in the proxy …"""

import torch


@torch.compiler.nested_compile_region
def attention(q, wo):
    out = q @ wo.T
    return out


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
wo = torch.randn(1, 16)

compiled(q, wo)
