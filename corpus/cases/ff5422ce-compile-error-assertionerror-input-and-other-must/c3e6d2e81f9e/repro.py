"""compile_error at inductor: AssertionError: input and other must have equal reduction
dimensions

For NVIDIA A10: found by attnfuzz's virtual-sm86, not run on such a device yet."""

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.set_default_device("cuda")


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return table[q_idx]

    return score_mod


def attention(q, k, v, score_mod):
    return flex_attention(q, k, v, score_mod=score_mod)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 128, 16)
k = torch.randn(1, 1, 128, 16)
v = torch.randn(1, 1, 128, 16)
table = torch.rand(128)
score_mod = make_score_mod(table)

compiled(q, k, v, score_mod)
torch.cuda.synchronize()
