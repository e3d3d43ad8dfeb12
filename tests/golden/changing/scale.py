import torch
import torch.nn.functional as F

ARGUMENTS = [1.0, 2.0]


def inputs(scale):
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    return q, k, v, scale


def attention(q, k, v, scale):
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def reference(q, k, v, scale):
    scores = scale * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
