"""wrong_result at eager: dq is off by 7.64, rounding explains 1.19e-05"""

import torch
import torch.nn.functional as F


def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def reference(q, k, v, attn_mask):
    scores = 0.25 * (q @ k.mT)
    scores = scores + attn_mask
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    (dq,) = torch.autograd.grad(out, q, dout)
    return {"out": out, "dq": dq}


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
q_idx = torch.arange(16)[:, None]
kv_idx = torch.arange(16)
mask = (q_idx - 1 >= kv_idx).expand(1, 1, 16, 16)
attn_mask = torch.zeros(1, 1, 16, 16).masked_fill(~mask, torch.finfo(torch.float32).min)

dq = run(attention, (q, k, v, attn_mask))["dq"]
expected = run(reference, (q.double(), k.double(), v.double(), attn_mask.double()))["dq"]
error = (dq - expected).abs().max().item()
assert error <= 1.19e-05, f"dq is off by {error:.3g}"
