import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    attn_mask = torch.arange(24) < 24 - (torch.arange(2)[:, None] + 1) % 3 * 24 // 3
    return q, k, v, attn_mask


def attention(q, k, v, attn_mask):
    return dispatch_attention_fn(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=attn_mask, backend="flex"
    ).transpose(1, 2)


def reference(q, k, v, attn_mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~attn_mask[:, None, None, :], float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
