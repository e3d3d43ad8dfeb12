import torch
import torch.nn.functional as F

ARGUMENTS = [8, 4]


def inputs(number):
    torch.manual_seed(0)
    q = torch.randn(2, 2, 6, 8)
    k = torch.randn(2, 2, 9, 8)
    v = torch.randn(2, 2, 9, 8)
    q_idx = torch.arange(6)[:, None]
    kv_idx = torch.arange(9)
    attn_mask = ((q_idx >= kv_idx) & (q_idx - kv_idx <= number)).expand(1, 1, 6, 9)
    return q, k, v, attn_mask


def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def reference(q, k, v, attn_mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~attn_mask, float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
