import functools

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

CALLS = [(1, 16, 16), (2, 4, 4)]


def make_score_mod(bias, Lkv):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[q_idx - kv_idx + Lkv - 1]

    return score_mod


def make_mask_mod(block_map):
    def mask_mod(b, h, q_idx, kv_idx):
        return block_map[q_idx // 4, kv_idx // 4]

    return mask_mod


@functools.cache
def score_mod_and_block_mask_for(B, Lq, Lkv):
    bias = torch.randn(Lq + Lkv - 1, dtype=torch.bfloat16)
    score_mod = make_score_mod(bias, Lkv)
    block_map = torch.rand(-(-Lq // 4), -(-Lkv // 4)) < 0.5
    block_mask = create_block_mask(make_mask_mod(block_map), None, None, Lq, Lkv, device="cpu")
    return score_mod, block_mask


def inputs(B, Lq, Lkv):
    torch.manual_seed(0)
    q = torch.randn(B, 1, Lq, 16)
    k = torch.randn(B, 1, Lkv, 16)
    v = torch.randn(B, 1, Lkv, 16)
    score_mod, block_mask = score_mod_and_block_mask_for(B, Lq, Lkv)
    return q, k, v, score_mod, block_mask


def attention(q, k, v, score_mod, block_mask):
    return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask)


def reference(q, k, v, score_mod, block_mask):
    B = q.shape[0]
    Lq = q.shape[2]
    Lkv = k.shape[2]
    scores = 0.25 * (q @ k.mT)
    b = torch.arange(B)[:, None, None, None]
    h = torch.arange(1)[:, None, None]
    q_idx = torch.arange(Lq)[:, None]
    kv_idx = torch.arange(Lkv)
    scores = score_mod(scores, b, h, q_idx, kv_idx).to(q.dtype)
    scores = scores.masked_fill(~block_mask.mask_mod(b, h, q_idx, kv_idx), float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


compiled = torch.compile(attention, fullgraph=True, options={"max_autotune": True})


def run(fn, args):
    return {"out": fn(*args)}
