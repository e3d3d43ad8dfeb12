"""compile_error at dynamo: RuntimeError: Argument 'item' of Node 'invoke_subgraph_1' does not
belong to this Graph, but was used as an argument! If you are copying nodes from another …"""

import torch
import torch.nn.functional as F


@torch.compiler.nested_compile_region
def attend(q, k, v, scale):
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def attention(q, k, v, scale):
    q = q + attend(q, k, v, scale)
    return attend(q, k, v, scale)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

for scale in [0.125, 1.125]:
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    compiled(q, k, v, scale)
