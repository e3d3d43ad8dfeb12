import torch
import torch.nn.functional as F


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 8, 8)
    k = torch.randn(2, 2, 12, 8)
    v = torch.randn(2, 2, 12, 8)
    angles = torch.arange(12)[:, None] * 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    cos, sin = angles.cos(), angles.sin()
    return q, k, v, cos, sin


def rope(x, cos, sin):
    """Rotate the two halves of the last dimension by each position's angles."""
    cos, sin = cos[: x.shape[-2]], sin[: x.shape[-2]]
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).to(x.dtype)


def attention(q, k, v, cos, sin):
    q, k = rope(q, cos, sin), rope(k, cos, sin)
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def reference(q, k, v, cos, sin):
    q, k = rope(q, cos, sin), rope(k, cos, sin)
    scores = 8 ** -0.5 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


class Attention(torch.nn.Module):
    def forward(self, q, k, v, cos, sin):
        return attention(q, k, v, cos, sin)


compiled = torch.compile(Attention(), backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
