import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return ~table[b][q_idx]

    return score_mod


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8)
    k = torch.randn(2, 4, 12, 8)
    v = torch.randn(2, 4, 12, 8)
    table = torch.rand(2, 8) < 0.5
    score_mod = make_score_mod(table)
    return q, k, v, score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


def reference(q, k, v, score_mod):
    scores = 8 ** -0.5 * (q @ k.mT)
    h = torch.arange(4)[:, None, None]
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(12)
    scores = torch.cat(
        [
            score_mod(scores[..., b : b + 1, :, :, :], b, h, q_idx, kv_idx).expand_as(
                scores[..., b : b + 1, :, :, :]
            ) for b in torch.arange(2)
        ],
        dim=-4,
    ).to(q.dtype)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
