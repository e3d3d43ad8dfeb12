"""nonfinite at eager: value of out: expected -0.546072841 at (0, 0, 0, 0), got nan at (0, 0,
0, 0) (240 of 256 elements not finite)"""

import torch
import torch.nn.functional as F


def nested(t, offsets):
    return torch.nested.nested_tensor_from_jagged(t, offsets)


def attention(q, k, v, offsets):
    out = F.scaled_dot_product_attention(
        nested(q, offsets), nested(k, offsets), nested(v, offsets), is_causal=True, scale=0.0
    )
    return out.values()


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
offsets = torch.tensor([0, 0, 1])

out = attention(q, k, v, offsets)
assert out.isfinite().all(), "out is not finite"
