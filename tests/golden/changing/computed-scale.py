import torch
from torch.nn.attention.flex_attention import flex_attention

CALLS = [(2, 6, 9), (1, 4, 4)]


def inputs(B, Lq, Lkv):
    torch.manual_seed(0)
    q = torch.randn(B, 2, Lq, 8)
    k = torch.randn(B, 2, Lkv, 8)
    v = torch.randn(B, 2, Lkv, 8)
    return q, k, v


def attention(q, k, v):
    return flex_attention(q, k, v, scale=q.size(-2) ** -0.5)


def reference(q, k, v):
    scores = q.size(-2) ** -0.5 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
