import torch
from attn_gym.masks import generate_natten
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    kv_idx = torch.arange(24)
    q_idx = kv_idx[:, None]
    x = (q_idx % 6).clamp(1, 4)
    y = (q_idx // 6).clamp(1, 2)
    seen = (kv_idx % 6 - x).abs() <= 1
    seen = seen & ((kv_idx // 6 - y).abs() <= 1)
    block_mask = create_block_mask(generate_natten(6, 4, 3, 3), None, None, 24, 24, device="cpu")
    return q, k, v, seen, block_mask


def attention(q, k, v, seen, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


def reference(q, k, v, seen, block_mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
