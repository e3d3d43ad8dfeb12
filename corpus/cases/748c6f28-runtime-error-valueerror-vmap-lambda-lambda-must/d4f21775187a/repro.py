"""runtime_error at eager: ValueError: vmap(<lambda>(), ...): `<lambda>()` must only return
Tensors, got type <class 'NoneType'>. Did you mean to set out_dims= to None for output?"""

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.set_default_device("cuda")


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return table[q_idx]

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
k = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, device="cpu").to("cuda").requires_grad_()
table = torch.rand(16, device="cpu").to("cuda")
score_mod = make_score_mod(table)

out = attention(q, k, v, score_mod)
dout = torch.randn(out.shape, dtype=out.dtype, device="cpu").to("cuda")
(dv,) = torch.autograd.grad(out, v, dout)
torch.cuda.synchronize()
