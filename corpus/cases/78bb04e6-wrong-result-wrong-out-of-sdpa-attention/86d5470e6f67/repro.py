"""wrong_result at eager: out is off by 1.2, rounding explains 0.39"""

import torch
import torch.nn.functional as F

torch.set_default_device("cuda")


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 17, dtype=torch.bfloat16, device="cpu").to("cuda")[:, :, :, 1:]
k = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")

out = attention(q, k, v)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 0.39, f"out is off by {error:.3g}"
