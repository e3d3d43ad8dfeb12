"""nonfinite at eager: value of out: expected -0.0468150421 at (0, 0, 0), got nan at (0, 0, 0)
(256 of 256 elements not finite)"""

import torch
import torch.nn.functional as F

torch.set_default_device("cuda")


def attention(q, k, v, mask):
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    out = out.transpose(1, 2)
    out = out.reshape(1, 16, -1)
    return out


torch.manual_seed(1984434354)
q = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
k = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
q_idx = torch.arange(16)[:, None]
kv_idx = torch.arange(16)
mask = ((q_idx - kv_idx).abs() <= 15) & ((q_idx - kv_idx) % 2 == 0)
mask = torch.randn(16, 16, device="cpu").to("cuda").masked_fill(
    ~mask, torch.finfo(torch.float32).min
)

out = attention(q, k, v, mask)
assert out.isfinite().all(), "out is not finite"
