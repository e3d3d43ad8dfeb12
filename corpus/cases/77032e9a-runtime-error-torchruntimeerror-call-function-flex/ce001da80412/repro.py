"""runtime_error at eager: TorchRuntimeError: RuntimeError when making fake tensor call"""

import torch
from torch.nn.attention.flex_attention import flex_attention


def attend(q, k, v):
    return flex_attention(q, k, v)


def attention(q, k, v):
    def attend_once(q):
        return attend(q, k, v)

    return torch.vmap(attend_once)(torch.stack((q, -q)))


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

attention(q, k, v)
