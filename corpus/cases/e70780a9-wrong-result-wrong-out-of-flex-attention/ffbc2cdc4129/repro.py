"""wrong_result at eager: out is off by 1.08, rounding explains 1.38e-05"""

import torch
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(document):
    def mask_mod(b, h, q_idx, kv_idx):
        return document[b, q_idx] == document[b, kv_idx]

    return mask_mod


def attention(q, k, v, mask_mod, paged, block_mask):
    k_cache = k.new_zeros(1, 1, 256, 16)
    v_cache = v.new_zeros(1, 1, 256, 16)
    entries = torch.arange(2)
    positions = torch.arange(16).expand(2, -1)
    paged.assign(entries, positions, k, v, k_cache, v_cache)
    return flex_attention(q, k_cache, v_cache, block_mask=block_mask)


torch.manual_seed(0)
q = torch.randn(2, 1, 16, 16)
k = torch.randn(2, 1, 16, 16)
v = torch.randn(2, 1, 16, 16)
document = torch.randint(2, (2, 256)).sort().values
mask_mod = make_mask_mod(document)
paged = PagedAttention(2, 128, 2, device="cpu")
for entry in range(2):
    paged.reserve(torch.tensor([entry]), torch.tensor([128]))
for entry in range(2):
    paged.erase(torch.tensor([entry]))
for entry in range(2):
    paged.reserve(torch.tensor([entry]), torch.tensor([16]))
kv_len = torch.full((2,), 16)
block_mask = create_block_mask(mask_mod, 2, None, 16, 16, device="cpu")
block_mask = paged.convert_logical_block_mask(block_mask, kv_len=kv_len)

out = attention(q, k, v, mask_mod, paged, block_mask)
q, k, v = (t.double() for t in (q, k, v))
scores = 0.25 * (q @ k.mT)
b, h, q_idx, kv_idx = torch.meshgrid(*map(torch.arange, (2, 1, 16, 16)), indexing="ij")
scores = scores.masked_fill(~mask_mod(b, h, q_idx, kv_idx), float("-inf"))
expected = torch.softmax(scores, dim=-1) @ v
error = (out - expected).abs().max().item()
assert error <= 1.38e-05, f"out is off by {error:.3g}"
