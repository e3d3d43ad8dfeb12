import functools

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint


def mask_mod_of(document, b, h, q_idx, kv_idx):
    return (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 1, 16, 16)
    k = torch.randn(2, 1, 16, 16)
    v = torch.randn(2, 1, 16, 16)
    document = torch.randint(2, (16,)).sort().values
    return q, k, v, document


def attend(q, k, v, document):
    block_mask = create_block_mask(
        functools.partial(mask_mod_of, document), None, None, 16, 16, device="cpu"
    )
    return flex_attention(q, k, v, block_mask=block_mask)


def attention(q, k, v, document):
    return checkpoint(attend, q, k, v, document, use_reentrant=False)


def reference(q, k, v, document):
    scores = 0.25 * (q @ k.mT)
    b = torch.arange(2)[:, None, None, None]
    h = torch.arange(1)[:, None, None]
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    scores = scores.masked_fill(
        ~functools.partial(mask_mod_of, document)(b, h, q_idx, kv_idx), float("-inf")
    )
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
