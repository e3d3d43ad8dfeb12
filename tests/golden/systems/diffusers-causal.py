import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    return q, k, v


def attention(q, k, v):
    return dispatch_attention_fn(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, backend="native"
    ).transpose(1, 2)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    seen = torch.ones(24, 24, dtype=torch.bool).tril()
    scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
