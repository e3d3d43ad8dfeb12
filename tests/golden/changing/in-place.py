import torch
import torch.nn.functional as F

SEEDS = [0, 1]

KEPT = []


def rewritten(*tensors):
    if not KEPT:
        KEPT.extend(tensors)
    with torch.no_grad():
        for kept, tensor in zip(KEPT, tensors):
            kept.copy_(tensor)
    return KEPT


def inputs(seed):
    torch.manual_seed(seed)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    q, k, v = rewritten(q, k, v)
    return q, k, v


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
