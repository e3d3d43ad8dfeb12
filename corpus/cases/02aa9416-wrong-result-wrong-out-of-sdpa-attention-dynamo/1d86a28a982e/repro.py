"""compile_error at dynamo: TorchRuntimeError: RuntimeError: Attempting to broadcast a
dimension of length 2 at -3! Mismatching argument at index 1 had torch.Size([2, 1, 161]); …"""

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right


@torch.compiler.nested_compile_region
def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 3, 1, 16)
k = torch.randn(1, 3, 161, 16)
v = torch.randn(1, 3, 161, 16)
attn_mask = causal_lower_right(1, 161)

compiled(q, k, v, attn_mask)
