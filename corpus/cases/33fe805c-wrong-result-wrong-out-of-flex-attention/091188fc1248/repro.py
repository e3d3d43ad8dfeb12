"""wrong_result at eager: out is off by 1.14, rounding explains 5.06e-06"""

import torch
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= 0


def attention(q, k, v, paged, block_mask):
    k_cache = k.new_zeros(1, 1, 256, 16)
    v_cache = v.new_zeros(1, 1, 256, 16)
    entries = torch.arange(1, 2)
    positions = torch.arange(16).expand(1, -1)
    paged.assign(entries, positions, k, v, k_cache, v_cache)
    return flex_attention(q, k_cache, v_cache, block_mask=block_mask)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
paged = PagedAttention(2, 128, 2, device="cpu")
paged.reserve(torch.tensor([0]), torch.tensor([128]))
paged.reserve(torch.tensor([1]), torch.tensor([16]))
kv_len = torch.full((1,), 16)
block_mask = create_block_mask(mask_mod, 1, None, 16, 16, device="cpu")
block_mask = paged.convert_logical_block_mask(block_mask, torch.arange(1, 2), kv_len=kv_len)

out = attention(q, k, v, paged, block_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
b, h, q_idx, kv_idx = torch.meshgrid(*map(torch.arange, (1, 1, 16, 16)), indexing="ij")
scores = scores.masked_fill(~mask_mod(b, h, q_idx, kv_idx), float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 5.06e-06, f"out is off by {error:.3g}"
