import torch
from torchtune.modules.attention_utils import _sdpa_or_flex_attention, packed_block_causal_mask

attention_call = _sdpa_or_flex_attention()


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    lengths = torch.tensor([0, 4, 12, 24]).diff()
    seq_lens = [lengths.flip(0) if i % 2 else lengths for i in range(2)]
    document = torch.stack([torch.repeat_interleave(n) for n in seq_lens])
    seen = (document[:, None, :, None] == document[:, None, None, :]).tril()
    mask = packed_block_causal_mask(seq_lens)
    return q, k, v, seen, mask


def attention(q, k, v, seen, mask):
    return attention_call(q, k, v, mask, dropout_p=0.0, is_causal=False)


def reference(q, k, v, seen, mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
