"""wrong_result at dynamo: out is off by 3.41, rounding explains 6.95e-06"""

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_upper_left


@torch.compiler.nested_compile_region
def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
attn_mask = causal_upper_left(16, 16)

out = compiled(q, k, v, attn_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
mask = torch.ones(16, 16, dtype=torch.bool).tril()
scores = scores.masked_fill(~mask, float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 6.95e-06, f"out is off by {error:.3g}"
