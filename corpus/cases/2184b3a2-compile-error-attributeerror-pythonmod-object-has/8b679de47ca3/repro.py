"""compile_error at inductor: AttributeError: 'PythonMod' object has no attribute 'get_name'"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def make_score_mod(number):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + number

    return score_mod


def attention(q, k, v, number):
    number = number % 8192
    return flex_attention(q, k, v, score_mod=make_score_mod(number))


compiled = torch.compile(attention, fullgraph=True)

for number in [8, 4]:
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16)
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    compiled(q, k, v, number)
