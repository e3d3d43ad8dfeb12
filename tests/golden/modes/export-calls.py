import torch
import torch.nn.functional as F

CALLS = [(2, 8, 12), (3, 5, 17)]


def inputs(B, Lq, Lkv):
    torch.manual_seed(0)
    q = torch.randn(B, 2, Lq, 8)
    k = torch.randn(B, 2, Lkv, 8)
    v = torch.randn(B, 2, Lkv, 8)
    return q, k, v


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def reference(q, k, v):
    scores = 8 ** -0.5 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return attention(q, k, v)


loaded = []


def compiled(q, k, v):
    if not loaded:
        shapes = [[torch.export.Dim.AUTO] * t.dim() for t in (q, k, v)]
        exported = torch.export.export(Attention(), (q, k, v), dynamic_shapes=shapes)
        loaded.append(exported.module())
    return loaded[0](q, k, v)


def run(fn, args):
    return {"out": fn(*args)}
