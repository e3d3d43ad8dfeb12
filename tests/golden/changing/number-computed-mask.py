import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

ARGUMENTS = [8, 4]


def make_mask_mod(number):
    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < number

    return mask_mod


def inputs(number):
    torch.manual_seed(0)
    q = torch.randn(2, 2, 6, 8)
    k = torch.randn(2, 2, 9, 8)
    v = torch.randn(2, 2, 9, 8)
    return q, k, v, number


def attention(q, k, v, number):
    number = number % 8192
    block_mask = create_block_mask(make_mask_mod(number), None, None, 6, 9, device="cpu")
    return flex_attention(q, k, v, block_mask=block_mask)


def reference(q, k, v, number):
    scores = 8 ** -0.5 * (q @ k.mT)
    b = torch.arange(2)[:, None, None, None]
    h = torch.arange(2)[:, None, None]
    q_idx = torch.arange(6)[:, None]
    kv_idx = torch.arange(9)
    scores = scores.masked_fill(~make_mask_mod(number)(b, h, q_idx, kv_idx), float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
