"""wrong_result at inductor: out is off by 2.23, rounding explains 9.38e-06

For NVIDIA H100 80GB HBM3: interpreted on a CPU, not run on such a device yet."""

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.set_default_device("cuda")


def rope(x, cos, sin):
    """Rotate the two halves of the last dimension by each position's angles."""
    cos, sin = cos[: x.shape[-2]], sin[: x.shape[-2]]
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).to(x.dtype)


def attention(q, k, v, cos, sin):
    q, k = rope(q, cos, sin), rope(k, cos, sin)
    return flex_attention(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 16, 2, 16, device="cpu").to("cuda").transpose(1, 2)
k = torch.randn(1, 2, 16, 16, device="cpu").to("cuda")
v = torch.randn(1, 2, 16, 16, device="cpu").to("cuda")
angles = torch.arange(16)[:, None] * 10000.0 ** (-torch.arange(0, 16, 2) / 16)
cos, sin = angles.cos(), angles.sin()

out = compiled(q, k, v, cos, sin)
q, k, v, cos, sin = (t.double() for t in (q, k, v, cos, sin))
q, k = rope(q, cos, sin), rope(k, cos, sin)
scores = 0.25 * (q @ k.mT)
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 9.38e-06, f"out is off by {error:.3g}"
