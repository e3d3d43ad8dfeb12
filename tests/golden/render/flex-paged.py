import torch
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 1, 16, 16)
    k = torch.randn(2, 1, 18, 16)
    v = torch.randn(2, 1, 18, 16)
    bias = torch.randn(39)
    score_mod = lambda score, b, h, q_idx, kv_idx: score + bias[q_idx - kv_idx + 17]
    mask_mod = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx
    paged = PagedAttention(10, 4, 2, device="cpu")
    for entry in range(2):
        paged.reserve(torch.tensor([entry]), torch.tensor([4]))
    for entry in range(2):
        paged.erase(torch.tensor([entry]))
    for tokens in (9, 18):
        for entry in range(2):
            paged.reserve(torch.tensor([entry]), torch.tensor([tokens]))
    kv_len = torch.full((2,), 18)
    block_mask = create_block_mask(mask_mod, 2, None, 16, 18, device="cpu", BLOCK_SIZE=(8, 4))
    block_mask = paged.convert_logical_block_mask(block_mask, kv_len=kv_len)
    return q, k, v, score_mod, mask_mod, paged, kv_len, block_mask


def attention(q, k, v, score_mod, mask_mod, paged, kv_len, block_mask):
    k_cache = k.new_zeros(1, 1, 40, 16)
    v_cache = v.new_zeros(1, 1, 40, 16)
    entries = torch.arange(2)
    positions = torch.arange(18).expand(2, -1)
    for part in (slice(9), slice(9, None)):
        paged.assign(entries, positions[:, part], k[:, :, part], v[:, :, part], k_cache, v_cache)
    return flex_attention(
        q, k_cache, v_cache, score_mod=paged.get_score_mod(score_mod, kv_len), block_mask=block_mask
    )


def reference(q, k, v, score_mod, mask_mod, paged, kv_len, block_mask):
    scores = 0.25 * (q @ k.mT)
    b = torch.arange(2)[:, None, None, None]
    h = torch.arange(1)[:, None, None]
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(18)
    scores = score_mod(scores, b, h, q_idx, kv_idx).to(q.dtype)
    scores = scores.masked_fill(~mask_mod(b, h, q_idx, kv_idx), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
