import torch
from torch.nn.attention.flex_attention import and_masks, create_mask
from torchtitan.models.common.attention import (
    FlexAttention,
    create_attention_mask,
    get_efficient_causal_mask_mod_for_packed_document,
    get_sliding_window_mask_mod,
)


def mask_mod(b, h, q_idx, kv_idx):
    return ((q_idx // 4 - kv_idx // 4).abs() <= 1) & ((q_idx % 4 - kv_idx % 4).abs() <= 1)


inner_attention = FlexAttention(FlexAttention.Config(block_size=16))


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    starts = torch.tensor([0, 8, 24])
    document = torch.bucketize(torch.arange(24), starts[1:], right=True).repeat(2, 1)
    document[1::2] = 1 - document[1::2].flip(1)
    positions = torch.arange(24) - torch.searchsorted(document, document)
    q_idx = torch.arange(24)[:, None]
    kv_idx = torch.arange(24)
    seen = (kv_idx <= q_idx) & (kv_idx > q_idx - 4)
    seen = seen & (document[:, None, :, None] == document[:, None, None, :])
    seen = seen & create_mask(mask_mod, 2, 2, 24, 24, device="cpu")
    block_mask = create_attention_mask(
        and_masks(
            get_sliding_window_mask_mod(4),
            get_efficient_causal_mask_mod_for_packed_document(positions),
            mask_mod,
        ),
        2,
        None,
        24,
        24,
        device="cpu",
        BLOCK_SIZE=16,
    )
    return q, k, v, seen, block_mask


def attention(q, k, v, seen, block_mask):
    return inner_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attention_masks=block_mask
    ).transpose(1, 2)


def reference(q, k, v, seen, block_mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~seen, float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


def run(fn, args):
    return {"out": fn(*args)}
