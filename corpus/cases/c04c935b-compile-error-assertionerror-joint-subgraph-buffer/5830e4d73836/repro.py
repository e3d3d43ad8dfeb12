"""compile_error at inductor: AssertionError: joint_subgraph_buffer is None - this is a bug!"""

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.set_default_device("cuda")


def score_mod(score, b, h, q_idx, kv_idx):
    return q_idx


def attention(q, k, v):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16).requires_grad_()

out = compiled(q, k, v)
generator = torch.Generator("cuda").manual_seed(1)
dout = torch.randn(out.shape, generator=generator).to(out)
(dv,) = torch.autograd.grad(out, v, dout, materialize_grads=True)
torch.cuda.synchronize()
