import torch
import torch.nn.functional as F


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    return q, k, v


def attention(q, k, v):
    residual = q
    q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
    q = q * 0.25
    scores = torch.bmm(q, k.transpose(-2, -1))
    probs = F.softmax(scores, dim=-1)
    return torch.bmm(probs, v).unflatten(0, (1, 1)) + residual


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    return (torch.softmax(scores, dim=-1) @ v) + q


def run(fn, args):
    return {"out": fn(*args)}
