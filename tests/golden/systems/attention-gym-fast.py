import torch
from attn_gym.masks.causal import create_causal_block_mask_fast
from torch.nn.attention.flex_attention import flex_attention


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    kv_idx = torch.arange(24)
    q_idx = kv_idx[:, None]
    seen = kv_idx <= q_idx
    block_mask = create_causal_block_mask_fast(2, 2, 24, 24, "cpu", 16)
    return q, k, v, seen, block_mask


def attention(q, k, v, seen, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


def reference(q, k, v, seen, block_mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
