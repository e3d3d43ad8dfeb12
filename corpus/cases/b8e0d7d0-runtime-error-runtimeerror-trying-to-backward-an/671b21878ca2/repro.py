"""runtime_error at eager: RuntimeError: Trying to backward an extra time. You are only allow …"""

import functools

import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch.set_default_device("cuda")


def make_score_mod(bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return bias[q_idx]

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
q = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
k = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
bias = torch.rand(16, device="cpu").to("cuda").requires_grad_()

out = attention(q, k, v, bias)
generator = torch.Generator().manual_seed(1)
dout = torch.randn(out.shape, generator=generator, device="cpu").to(out)
(dbias,) = torch.autograd.grad(out, bias, dout, materialize_grads=True)
torch.cuda.synchronize()
