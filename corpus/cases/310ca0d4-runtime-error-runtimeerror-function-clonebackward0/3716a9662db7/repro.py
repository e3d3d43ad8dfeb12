"""runtime_error at eager: RuntimeError: Function CloneBackward0 returned an invalid gradient
at index 0 - got [1, j2, 1, 16] but expected shape compatible with [1, j1, 1, 16]"""

import torch
import torch.nn.functional as F


def nested(t, lengths):
    t = t.transpose(1, 2).contiguous()
    rows = torch.nested.narrow(t, 1, 0, lengths, layout=torch.jagged)
    return rows.contiguous().transpose(1, 2)


def attention(q, k, v, lengths_q, lengths_kv):
    out = F.scaled_dot_product_attention(
        nested(q, lengths_q), nested(k, lengths_kv), nested(v, lengths_kv)
    )
    return torch.nested.to_padded_tensor(out.transpose(1, 2), 0.0, (1, 16, 1, 16)).transpose(1, 2)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
lengths_q = (16 * (torch.arange(1) % 3 + 1) // 3).clamp(min=1)
lengths_kv = (16 * (torch.arange(1) % 3 + 1) // 3).clamp(min=1)

out = attention(q, k, v, lengths_q, lengths_kv)
dout = torch.randn(out.shape, dtype=out.dtype)
(dq,) = torch.autograd.grad(out, q, dout)
