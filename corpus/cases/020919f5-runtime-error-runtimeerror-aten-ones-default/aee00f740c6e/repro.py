"""runtime_error at eager: RuntimeError: aten.ones.default encountered during backward, but not
found in storage"""

import functools

import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch.set_default_device("cuda")


def score_mod(score, b, h, q_idx, kv_idx):
    return torch.where(q_idx >= 0, score, score)


SAVED = [
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
]
save_products = functools.partial(create_selective_checkpoint_contexts, SAVED)


def attend(q, k, v):
    return flex_attention(q, k, v, score_mod=score_mod)


def attention(q, k, v):
    return checkpoint(attend, q, k, v, use_reentrant=False, context_fn=save_products)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, device="cpu").to("cuda").requires_grad_()
k = torch.randn(1, 1, 16, 16, device="cpu").to("cuda").requires_grad_()
v = torch.randn(1, 1, 16, 16, device="cpu").to("cuda").requires_grad_()

out = attention(q, k, v)
dq, dk, dv = torch.autograd.grad(out.sum(), (q, k, v))
torch.cuda.synchronize()
