"""runtime_error at eager: RuntimeError: Cannot set version_counter for inference tensor"""

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
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
offsets_q = torch.tensor([0, 5, 16])
offsets_kv = torch.tensor([0, 5, 16])

with torch.inference_mode():
    attention(q, k, v, offsets_q, offsets_kv)
