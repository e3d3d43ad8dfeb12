"""nonfinite at dynamo: value of out: expected -1.08408248 at (0, 0, 0, 0), got nan at (0, 0,
0, 0) (64 of 512 elements not finite)"""

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_upper_left
from torch.utils.checkpoint import checkpoint


def attend(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def attention(q, k, v, attn_mask):
    return checkpoint(attend, q, k, v, attn_mask, use_reentrant=False)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)
attn_mask = causal_upper_left(16, 16)

out = compiled(q, k, v, attn_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
mask = torch.ones(16, 16, dtype=torch.bool).tril()
scores = scores.masked_fill(~mask, float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
# Not so if it is NaN, nor if it is off by a tenth of the largest value.
largest = expected.abs().max().item()
assert error <= 0.1 * largest, f"out is off by {error:.3g}"
