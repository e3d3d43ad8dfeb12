import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod():
    def inner(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    def mask_mod(b, h, q_idx, kv_idx):
        return inner(b, h, q_idx, kv_idx)

    return mask_mod


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    block_mask = create_block_mask(make_mask_mod(), None, None, 16, 16, device="cpu")
    return q, k, v, block_mask


def attention(q, k, v, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


def reference(q, k, v, block_mask):
    scores = 0.25 * (q @ k.mT)
    b = torch.arange(1)[:, None, None, None]
    h = torch.arange(1)[:, None, None]
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    scores = scores.masked_fill(~block_mask.mask_mod(b, h, q_idx, kv_idx), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
