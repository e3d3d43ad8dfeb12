import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8)
    k = torch.randn(2, 2, 12, 8)
    v = torch.randn(2, 2, 12, 8)
    return q, k, v


def attention(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5, enable_gqa=True)


def reference(q, k, v):
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = 0.5 * (q @ k.mT)
    mask = torch.ones(8, 12, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, dynamic=True, fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
