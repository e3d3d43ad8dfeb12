import torch
from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.models.common.attention import ScaledDotProductAttention

inner_attention = ScaledDotProductAttention(ScaledDotProductAttention.Config())
model = torch.nn.Module()
model.layers = torch.nn.ModuleDict({"0": inner_attention})
SelectiveAC(SelectiveAC.Config()).apply(model)
inner_attention = model.layers["0"]


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    return q, k, v


def attention(q, k, v):
    return inner_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
