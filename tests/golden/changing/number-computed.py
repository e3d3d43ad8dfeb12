import torch
from torch.nn.attention.flex_attention import flex_attention

ARGUMENTS = [8, 4]


def make_score_mod(number):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score - (q_idx - kv_idx) * number

    return score_mod


def inputs(number):
    torch.manual_seed(0)
    q = torch.randn(2, 2, 6, 8)
    k = torch.randn(2, 2, 9, 8)
    v = torch.randn(2, 2, 9, 8)
    return q, k, v, number


def attention(q, k, v, number):
    number = number % 8192
    return flex_attention(q, k, v, score_mod=make_score_mod(number))


def reference(q, k, v, number):
    scores = 8 ** -0.5 * (q @ k.mT)
    b = torch.arange(2)[:, None, None, None]
    h = torch.arange(2)[:, None, None]
    q_idx = torch.arange(6)[:, None]
    kv_idx = torch.arange(9)
    scores = make_score_mod(number)(scores, b, h, q_idx, kv_idx).to(q.dtype)
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
