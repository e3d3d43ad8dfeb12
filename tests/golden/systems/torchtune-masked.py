import torch
from torchtune.modules.attention_utils import _sdpa_or_flex_attention

attention_call = _sdpa_or_flex_attention()


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    length = torch.randint(25, (2,))
    b = torch.arange(2)[:, None, None, None]
    kv_idx = torch.arange(24)
    mask = (kv_idx < length[b]).expand(2, 1, 24, 24)
    mask = mask.squeeze(1)
    return q, k, v, mask


def attention(q, k, v, mask):
    k = k.unsqueeze(2).expand(2, 2, 2, -1, 16).flatten(1, 2)
    v = v.unsqueeze(2).expand(2, 2, 2, -1, 16).flatten(1, 2)
    return attention_call(q, k, v, mask, dropout_p=0.0, is_causal=False)


def reference(q, k, v, mask):
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~mask[:, None], float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


def run(fn, args):
    return {"out": fn(*args)}
