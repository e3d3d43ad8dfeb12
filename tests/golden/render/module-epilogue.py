import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention


def inputs():
    torch.manual_seed(0)
    x = torch.randn(1, 16, 16)
    wq = torch.randn(16, 16) / 16 ** 0.5
    wk = torch.randn(16, 16) / 16 ** 0.5
    wv = torch.randn(16, 16) / 16 ** 0.5
    wo = torch.randn(16, 16) / 16 ** 0.5
    return x, wq, wk, wv, wo


def attention(x, wq, wk, wv, wo):
    q = F.linear(x, wq).unflatten(-1, (1, 16)).transpose(1, 2)
    k = F.linear(x, wk).unflatten(-1, (1, 16)).transpose(1, 2)
    v = F.linear(x, wv).unflatten(-1, (1, 16)).transpose(1, 2)
    gate = torch.sigmoid(q)
    return F.linear((flex_attention(q, k, v) * gate).transpose(1, 2).flatten(2), wo)


def reference(x, wq, wk, wv, wo):
    q = F.linear(x, wq).unflatten(-1, (1, 16)).transpose(1, 2)
    k = F.linear(x, wk).unflatten(-1, (1, 16)).transpose(1, 2)
    v = F.linear(x, wv).unflatten(-1, (1, 16)).transpose(1, 2)
    gate = torch.sigmoid(q)
    scores = 0.25 * (q @ k.mT)
    return F.linear(((torch.softmax(scores, dim=-1) @ v) * gate).transpose(1, 2).flatten(2), wo)


compiled = torch.compile(attention, fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
