import ctypes

import torch
import torch.nn.functional as F

ctypes.CDLL("libc.so.6").mallopt(-6, 1)  # M_PERTURB: fresh memory is filled with 0xFE


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 13, 4, 9).transpose(1, 2)[:, :, 2:10, :8]
    k = (8 * torch.randn(24, 2, 4, 8)).permute(1, 2, 0, 3)[:, :, ::2]
    v = (8 * (torch.rand(1, 1, 12, 8) < 0.1).float()).expand(2, 4, 12, 8)
    return q, k, v


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def reference(q, k, v):
    scores = 8 ** -0.5 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
