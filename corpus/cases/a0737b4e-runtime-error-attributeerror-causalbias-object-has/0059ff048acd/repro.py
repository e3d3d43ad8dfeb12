"""runtime_error at eager: AttributeError: 'CausalBias' object has no attribute 'seq_len_q'"""

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_upper_left
from torch.utils.checkpoint import checkpoint


def attend(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def attention(q, k, v, attn_mask):
    return checkpoint(attend, q, k, v, attn_mask, use_reentrant=True)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
attn_mask = causal_upper_left(16, 16)

out = attention(q, k, v, attn_mask)
dout = torch.randn(out.shape, dtype=out.dtype)
torch.autograd.backward(out, dout)
