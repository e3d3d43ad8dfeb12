import torch
from attn_gym.masks import batchify_mask_mod, generate_global_sliding_window
from torch.nn.attention.flex_attention import (
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
)


def make_mask_mod(length):
    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < length[b]

    return mask_mod


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    is_global = torch.arange(24) % 7 == 0
    length = torch.randint(25, (2,))
    mask_mod = make_mask_mod(length)
    kv_idx = torch.arange(24)
    batch, kv_idx = kv_idx // 3, kv_idx % 3
    q_idx = kv_idx[:, None]
    seen = ((q_idx - kv_idx).abs() <= 3) | is_global[q_idx] | is_global[kv_idx]
    seen = seen & (batch[:, None] == batch)
    seen = seen & create_mask(mask_mod, 2, 2, 24, 24, device="cpu")
    block_mask = create_block_mask(
        and_masks(batchify_mask_mod(generate_global_sliding_window(3, is_global), 3), mask_mod),
        2,
        None,
        24,
        24,
        device="cpu",
    )
    return q, k, v, seen, block_mask


def attention(q, k, v, seen, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


def reference(q, k, v, seen, block_mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~seen, float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


def run(fn, args):
    return {"out": fn(*args)}
