"""wrong_result at eager: out is off by 1.7, rounding explains 3.14e-05"""

import torch
import torch.nn.functional as F

module = torch.nn.MultiheadAttention(16, 1, add_zero_attn=True, batch_first=True).eval()


def attention(q, k, v, in_weight, in_bias, out_weight, out_bias, attn_mask):
    query = q.transpose(1, 2).flatten(2)
    key = k.transpose(1, 2).flatten(2)
    value = v.transpose(1, 2).flatten(2)
    parameters = {
        "in_proj_weight": in_weight,
        "in_proj_bias": in_bias,
        "out_proj.weight": out_weight,
        "out_proj.bias": out_bias,
    }
    options = {"attn_mask": attn_mask, "need_weights": False, "is_causal": True}
    return torch.func.functional_call(module, parameters, (query, key, value), options)[0]


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
in_weight = torch.randn(48, 16) / 16 ** 0.5
in_bias = torch.randn(48)
out_weight = torch.randn(16, 16) / 16 ** 0.5
out_bias = torch.randn(16)
q_idx = torch.arange(16)[:, None]
kv_idx = torch.arange(16)
mask = q_idx >= kv_idx
attn_mask = ~mask

out = attention(q, k, v, in_weight, in_bias, out_weight, out_bias, attn_mask)
q, k, v, in_weight, in_bias, out_weight, out_bias = (
    t.double() for t in (q, k, v, in_weight, in_bias, out_weight, out_bias)
)
q, k, v = (t.transpose(1, 2).flatten(2) for t in (q, k, v))
q_weight, k_weight, v_weight = in_weight.chunk(3)
q_bias, k_bias, v_bias = in_bias.chunk(3)
q = F.linear(q, q_weight, q_bias).unflatten(2, (1, 16)).transpose(1, 2)
k = F.linear(k, k_weight, k_bias).unflatten(2, (1, 16)).transpose(1, 2)
v = F.linear(v, v_weight, v_bias).unflatten(2, (1, 16)).transpose(1, 2)
scores = 0.25 * (q @ k.mT)
scores = scores.masked_fill(attn_mask, float("-inf"))
scores, v = F.pad(scores, (0, 1)), F.pad(v, (0, 0, 0, 1))
expected = F.linear(
    (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), out_weight, out_bias
)
error = (out - expected).abs().max().item()
assert error <= 3.14e-05, f"out is off by {error:.3g}"
