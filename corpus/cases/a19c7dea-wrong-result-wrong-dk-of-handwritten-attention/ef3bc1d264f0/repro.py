"""wrong_result at dynamo: dk is off by 0.604, rounding explains 8.43e-06"""

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def attend(q, k, v):
    v = torch.cat((v, torch.eye(16, dtype=q.dtype).expand(1, 1, -1, -1)), dim=-1)
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    probs = F.dropout(probs, p=0.1)
    return torch.matmul(probs, v)


def attention(q, k, v):
    return checkpoint(attend, q, k, v, use_reentrant=False)


def probabilities(q, k):
    scores = 0.25 * (q @ k.mT)
    return torch.softmax(scores, dim=-1)


def undropped(out, q, k, v):
    # What is dropped is added: this is P @ v, whichever weights are kept.
    probs = probabilities(q, k)
    out, weights = out.split((16, 16), dim=-1)
    kept = weights != 0
    out = 0.9 * out + probs.masked_fill(kept, 0) @ v
    seen = probs > 1e-3
    count = seen.sum().clamp(min=1)
    dropped = (seen & ~kept).sum() / count
    return out, ((dropped - 0.1).abs() - 3.77 / count.sqrt()).clamp(min=0)


def reference(q, k, v):
    probs = probabilities(q, k)
    kept = torch.rand(probs.shape) >= 0.1
    probs = (1.1111111111111112 * probs).masked_fill(~kept, 0)
    return torch.cat((probs @ v, probs), dim=-1)


def run(fn, args):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        _, k, *_ = args
        out, excess = undropped(fn(*args), *args)
        generator = torch.Generator().manual_seed(1)
        dout = torch.randn(out.shape, generator=generator).to(out.dtype)
        (dk,) = torch.autograd.grad(out, k, dout)
        return {"out": out, "excess": excess, "dk": dk}


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16).requires_grad_()
v = torch.randn(1, 1, 16, 16)

dk = run(compiled, (q, k, v))["dk"]
expected = run(reference, (q.double(), k.double(), v.double()))["dk"]
error = (dk - expected).abs().max().item()
assert error <= 8.43e-06, f"dk is off by {error:.3g}"
