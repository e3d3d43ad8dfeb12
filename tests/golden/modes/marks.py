import torch
import torch.nn.functional as F


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 8, 8)
    k = torch.randn(2, 2, 12, 8)
    v = torch.randn(2, 2, 12, 8)
    torch._dynamo.decorators.mark_unbacked(q, 0, shape_id="B")
    torch._dynamo.mark_dynamic(q, 2)
    torch._dynamo.decorators.mark_unbacked(k, 0, shape_id="B")
    torch._dynamo.mark_static(k, 2)
    torch._dynamo.decorators.mark_unbacked(v, 0, shape_id="B")
    torch._dynamo.mark_static(v, 2)
    return q, k, v


def attention(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / (8 ** 0.5)
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def reference(q, k, v):
    scores = 8 ** -0.5 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, backend="eager", fullgraph=True)


def run(fn, args):
    return {"out": fn(*args)}
