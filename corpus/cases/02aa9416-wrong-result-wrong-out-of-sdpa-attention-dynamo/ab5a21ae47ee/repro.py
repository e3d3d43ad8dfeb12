"""metadata_mismatch at dynamo: shape of out: expected (1, 1, 16, 16), got (1, 2, 16, 16)"""

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from torch.utils.checkpoint import checkpoint


def attend(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def attention(q, k, v, attn_mask):
    return checkpoint(attend, q, k, v, attn_mask, use_reentrant=False)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
attn_mask = causal_lower_right(16, 16)

out = compiled(q, k, v, attn_mask)
expected = attention(q, k, v, attn_mask)
assert out.shape == expected.shape, (out.shape, expected.shape)
