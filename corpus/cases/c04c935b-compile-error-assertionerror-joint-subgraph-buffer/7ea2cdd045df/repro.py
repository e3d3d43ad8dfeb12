"""compile_error at inductor: AssertionError: joint_subgraph_buffer is None - this is a bug!

For NVIDIA H100 80GB HBM3: found by attnfuzz's virtual-sm90, not run on such a device yet."""

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.set_default_device("cuda")


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return table[kv_idx]

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16).requires_grad_()
v = torch.randn(1, 1, 16, 16).requires_grad_()
table = torch.randn(16)
score_mod = make_score_mod(table)

out = compiled(q, k, v, score_mod)
dout = torch.randn(out.shape, dtype=out.dtype)
dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout, materialize_grads=True)
torch.cuda.synchronize()
