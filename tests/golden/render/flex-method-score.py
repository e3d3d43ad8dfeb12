import torch
from torch.nn.attention.flex_attention import flex_attention

CALLS = [(1, 16, 16), (1, 4, 4)]


class ScoreMod:
    def __init__(self, bias, Lkv):
        self.bias, self.Lkv = bias, Lkv

    def score_mod(self, score, b, h, q_idx, kv_idx):
        return score + self.bias[q_idx - kv_idx + self.Lkv - 1]


def inputs(B, Lq, Lkv):
    torch.manual_seed(0)
    q = torch.randn(B, 1, Lq, 16)
    k = torch.randn(B, 1, Lkv, 16)
    v = torch.randn(B, 1, Lkv, 16)
    bias = torch.randn(Lq + Lkv - 1)
    score_mod = ScoreMod(bias, Lkv).score_mod
    return q, k, v, score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


def reference(q, k, v, score_mod):
    B = q.shape[0]
    Lq = q.shape[2]
    Lkv = k.shape[2]
    scores = 0.25 * (q @ k.mT)
    b = torch.arange(B)[:, None, None, None]
    h = torch.arange(1)[:, None, None]
    q_idx = torch.arange(Lq)[:, None]
    kv_idx = torch.arange(Lkv)
    scores = score_mod(scores, b, h, q_idx, kv_idx).to(q.dtype)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
