import torch
from attn_gym.masks import generate_doc_mask_mod, generate_sliding_window
from attn_gym.mods import generate_alibi_bias
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

modify_score = generate_alibi_bias(2)


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    offsets = torch.tensor([0, 8, 24], dtype=torch.int32)
    kv_idx = torch.arange(24)
    document = torch.searchsorted(offsets, kv_idx, right=True) - 1
    kv_idx = kv_idx - offsets[document]
    q_idx = kv_idx[:, None]
    seen = (kv_idx <= q_idx) & (kv_idx >= q_idx - 3)
    seen = seen & (document[:, None] == document)
    block_mask = create_block_mask(
        generate_doc_mask_mod(generate_sliding_window(3), offsets), None, None, 24, 24, device="cpu"
    )
    return q, k, v, seen, block_mask


def attention(q, k, v, seen, block_mask):
    return flex_attention(q, k, v, score_mod=modify_score, block_mask=block_mask)


def reference(q, k, v, seen, block_mask):
    scores = 0.25 * (q @ k.mT)
    slope = torch.exp2(-8 * torch.arange(1, 3) / 2).to(scores.dtype)
    scores = scores + slope[:, None, None] * (torch.arange(24) - torch.arange(24)[:, None])
    scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
