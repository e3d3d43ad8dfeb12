"""runtime_error at eager: RuntimeError: Trying to backward an extra time. You are only allowed
to backward once on any region computed under selective activation checkpoint."""

import functools

import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[h]

    return score_mod


SAVED = [
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
]
save_products = functools.partial(create_selective_checkpoint_contexts, SAVED)


def attend(q, k, v, bias):
    return flex_attention(q, k, v, score_mod=make_score_mod(bias))


def attention(q, k, v, bias):
    return checkpoint(attend, q, k, v, bias, use_reentrant=False, context_fn=save_products)


torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)
bias = torch.rand(2).requires_grad_()

out = attention(q, k, v, bias)
dout = torch.randn(out.shape, dtype=out.dtype)
(dbias,) = torch.autograd.grad(out, bias, dout)
