"""wrong_result at eager: out is off by 0.000275, rounding explains 1.44e-05"""

import torch
import torch.nn.functional as F

module = torch.nn.TransformerEncoderLayer(
    32, 2, 32, activation=torch.nn.GELU(approximate="tanh"), batch_first=True
).eval()


def attention(q, k, v, in_weight, out_weight, weight1, weight2, biases, norms):
    src = q.transpose(1, 2).flatten(2)
    in_bias, out_bias, bias1, bias2 = biases.split((96, 32, 32, 32), dim=-1)
    parameters = {
        "self_attn.in_proj_weight": in_weight,
        "self_attn.out_proj.weight": out_weight,
        "linear1.weight": weight1,
        "linear2.weight": weight2,
        "self_attn.in_proj_bias": in_bias,
        "self_attn.out_proj.bias": out_bias,
        "linear1.bias": bias1,
        "linear2.bias": bias2,
        "norm1.weight": norms[0],
        "norm1.bias": norms[1],
        "norm2.weight": norms[2],
        "norm2.bias": norms[3],
    }
    options = {}
    return torch.func.functional_call(module, parameters, (src,), options)


def reference(q, k, v, in_weight, out_weight, weight1, weight2, biases, norms):
    def attend(x, y, in_weight, in_bias, out_weight, out_bias):
        parts = zip((x, y, y), in_weight.chunk(3), in_bias.chunk(3))
        q, k, v = (F.linear(t, w, b).unflatten(2, (2, 16)).transpose(1, 2) for t, w, b in parts)
        scores = 0.25 * (q @ k.mT)
        out = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)
        return F.linear(out, out_weight, out_bias)

    def norm(x, weight, bias):
        x = x - x.mean(dim=-1, keepdim=True)
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)
        return x * weight + bias

    x = q.transpose(1, 2).flatten(2)
    in_bias, out_bias, bias1, bias2 = biases.split((96, 32, 32, 32), dim=-1)
    z = x + attend(x, x, in_weight, in_bias, out_weight, out_bias)
    x = norm(z, *norms[0:2])
    z = x + F.linear(F.gelu(F.linear(x, weight1, bias1), approximate="tanh"), weight2, bias2)
    x = norm(z, *norms[2:4])
    return x


torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16)
k = torch.randn(1, 2, 16, 16)
v = torch.randn(1, 2, 16, 16)
in_weight = torch.randn(96, 32) / 32 ** 0.5
out_weight = torch.randn(32, 32) / 32 ** 0.5
weight1 = torch.randn(32, 32) / 32 ** 0.5
weight2 = torch.randn(32, 32) / 32 ** 0.5
biases = torch.randn(192)
norms = torch.rand(4, 32) + 0.5

out = attention(q, k, v, in_weight, out_weight, weight1, weight2, biases, norms)
expected = reference(
    q.double(),
    k.double(),
    v.double(),
    in_weight.double(),
    out_weight.double(),
    weight1.double(),
    weight2.double(),
    biases.double(),
    norms.double(),
)
error = (out - expected).abs().max().item()
assert error <= 1.44e-05, f"out is off by {error:.3g}"
