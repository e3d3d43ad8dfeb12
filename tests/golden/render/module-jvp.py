import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    angles = torch.arange(16)[:, None] * 10000.0 ** (-torch.arange(0, 16, 2) / 16)
    cos, sin = angles.cos(), angles.sin()
    return q, k, v, cos, sin


def rope(x, cos, sin):
    """Rotate the two halves of the last dimension by each position's angles."""
    cos, sin = cos[: x.shape[-2]], sin[: x.shape[-2]]
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).to(x.dtype)


def attend(q, k, v, cos, sin):
    with sdpa_kernel(SDPBackend.MATH):
        q, k = F.rms_norm(q, (16,), eps=1e-6), F.rms_norm(k, (16,), eps=1e-6)
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        return F.scaled_dot_product_attention(q, k, v)


def attention(q, k, v, cos, sin):
    def output(q, k, v):
        return attend(q, k, v, cos, sin)

    tangents = tuple(t.flip(-1) for t in (q, k, v))
    return torch.func.jvp(output, (q, k, v), tangents)


def reference(q, k, v, cos, sin):
    def plain(q, k, v):
        q, k = (t * torch.rsqrt(t.square().mean(dim=-1, keepdim=True) + 1e-6) for t in (q, k))
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        scores = 0.25 * (q @ k.mT)
        return torch.softmax(scores, dim=-1) @ v

    tangents = tuple(t.flip(-1) for t in (q, k, v))
    return torch.func.jvp(plain, (q, k, v), tangents)


def run(fn, args):
    out, tangent = fn(*args)
    return {"out": out, "tangent": tangent}
