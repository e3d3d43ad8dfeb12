"""runtime_error at eager: RuntimeError: setStorage: sizes [1, 4, 1], strides [4, 1, 1],
storage offset 7, and itemsize 1 requiring a storage size of 11 are out of bounds for …"""

import torch
import torch.nn.functional as F


def nested(t, offsets):
    values = t[0].transpose(0, 1).contiguous()
    return torch.nested.nested_tensor_from_jagged(values, offsets).transpose(1, 2)


def attention(q, k, v, offsets_q, offsets_kv):
    out = F.scaled_dot_product_attention(
        nested(q, offsets_q), nested(k, offsets_kv), nested(v, offsets_kv)
    )
    return out.transpose(1, 2).values().transpose(0, 1)[None]


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 2, 16)
v = torch.randn(1, 1, 2, 16)
offsets_q = torch.tensor([0, *torch.randint(17, (2,)).sort().values, 16])
offsets_kv = torch.tensor([0, *torch.randint(3, (2,)).sort().values, 2])

attention(q, k, v, offsets_q, offsets_kv)
