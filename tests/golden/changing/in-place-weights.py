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
    x = torch.randn(1, 16, 16)
    wq = torch.randn(16, 16) / 16 ** 0.5
    wk = torch.randn(16, 16) / 16 ** 0.5
    wv = torch.randn(16, 16) / 16 ** 0.5
    wo = torch.randn(16, 16) / 16 ** 0.5
    x, wq, wk, wv, wo = rewritten(x, wq, wk, wv, wo)
    return x, wq, wk, wv, wo


def attention(x, wq, wk, wv, wo):
    q = F.linear(x, wq).unflatten(-1, (1, 16)).transpose(1, 2)
    k = F.linear(x, wk).unflatten(-1, (1, 16)).transpose(1, 2)
    v = F.linear(x, wv).unflatten(-1, (1, 16)).transpose(1, 2)
    return F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2), wo)


def reference(x, wq, wk, wv, wo):
    q = F.linear(x, wq).unflatten(-1, (1, 16)).transpose(1, 2)
    k = F.linear(x, wk).unflatten(-1, (1, 16)).transpose(1, 2)
    v = F.linear(x, wv).unflatten(-1, (1, 16)).transpose(1, 2)
    scores = 0.25 * (q @ k.mT)
    return F.linear((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), wo)


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
