import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention


def make_mask_mod(length):
    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < length[b]

    return mask_mod


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8)
    k = torch.randn(2, 1, 12, 8)
    v = torch.randn(2, 2, 12, 8)
    length = torch.randint(13, (2,))
    block_mask = create_block_mask(make_mask_mod(length), 2, None, 8, 12, device="cpu")
    mask = create_mask(block_mask.mask_mod, 2, 4, 8, 12, device="cpu")
    unseen = ~mask.expand(2, 4, 8, 12).any(dim=2)
    unseen = unseen.unflatten(1, (2, 2)).all(dim=2)
    unseen = unseen.all(dim=1, keepdim=True)
    k.masked_fill_(unseen[..., None], float("nan"))
    k = k.expand(2, 2, 12, 8)
    return q, k, v, block_mask


def attention(q, k, v, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask, enable_gqa=True)


def reference(q, k, v, block_mask):
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = 8 ** -0.5 * (q @ k.mT)
    b = torch.arange(2)[:, None, None, None]
    h = torch.arange(4)[:, None, None]
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(12)
    scores = scores.masked_fill(~block_mask.mask_mod(b, h, q_idx, kv_idx), float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


def run(fn, args):
    return {"out": fn(*args)}
