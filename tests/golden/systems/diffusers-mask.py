import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    document = torch.randint(2, (24,)).sort().values
    q_idx = torch.arange(24)[:, None]
    kv_idx = torch.arange(24)
    mask = ((document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)).expand(1, 1, 24, 24)
    attn_mask = torch.zeros(1, 1, 24, 24).masked_fill(~mask, float("-inf"))
    return q, k, v, attn_mask


def attention(q, k, v, attn_mask):
    return dispatch_attention_fn(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=attn_mask,
        backend="_native_math",
    ).transpose(1, 2)


def reference(q, k, v, attn_mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores + attn_mask
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
