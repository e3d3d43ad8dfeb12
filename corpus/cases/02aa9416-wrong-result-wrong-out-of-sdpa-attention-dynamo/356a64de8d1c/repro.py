"""compile_error at aot_eager: TypeError: Multiple dispatch failed for
'torch._ops.aten.add.Tensor'; all __torch_dispatch__ handlers returned NotImplemented"""

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_upper_left
from torch.utils.checkpoint import checkpoint


def attend(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def attention(q, k, v, attn_mask):
    return checkpoint(attend, q, k, v, attn_mask, use_reentrant=False)


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
attn_mask = causal_upper_left(16, 16)

compiled(q, k, v, attn_mask)
