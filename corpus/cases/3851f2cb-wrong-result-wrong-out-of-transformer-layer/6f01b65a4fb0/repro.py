"""wrong_result at eager: out is off by 0.181, rounding explains 1.43e-05"""

import torch
import torch.nn.functional as F

layer = torch.nn.TransformerDecoderLayer(16, 1, 32, activation=torch.nn.GELU(), batch_first=True)
module = torch.nn.TransformerDecoder(layer, 1).eval()


def attention(
    q,
    k,
    v,
    in_weight,
    out_weight,
    memory_in_weight,
    memory_out_weight,
    weight1,
    weight2,
    biases,
    norms,
):
    tgt = q.transpose(1, 2).flatten(2)
    memory = k.transpose(1, 2).flatten(2)
    in_bias, out_bias, memory_in_bias, memory_out_bias, bias1, bias2 = biases.split(
        (48, 16, 48, 16, 32, 16), dim=-1
    )
    layer = {
        "self_attn.in_proj_weight": in_weight,
        "self_attn.out_proj.weight": out_weight,
        "multihead_attn.in_proj_weight": memory_in_weight,
        "multihead_attn.out_proj.weight": memory_out_weight,
        "linear1.weight": weight1,
        "linear2.weight": weight2,
        "self_attn.in_proj_bias": in_bias,
        "self_attn.out_proj.bias": out_bias,
        "multihead_attn.in_proj_bias": memory_in_bias,
        "multihead_attn.out_proj.bias": memory_out_bias,
        "linear1.bias": bias1,
        "linear2.bias": bias2,
        "norm1.weight": norms[:, 0],
        "norm1.bias": norms[:, 1],
        "norm2.weight": norms[:, 2],
        "norm2.bias": norms[:, 3],
        "norm3.weight": norms[:, 4],
        "norm3.bias": norms[:, 5],
    }
    parameters = {f"layers.{i}.{name}": t[i] for i in range(1) for name, t in layer.items()}
    options = {}
    return torch.func.functional_call(module, parameters, (tgt, memory), options)


def reference(
    q,
    k,
    v,
    in_weight,
    out_weight,
    memory_in_weight,
    memory_out_weight,
    weight1,
    weight2,
    biases,
    norms,
):
    def attend(x, y, in_weight, in_bias, out_weight, out_bias):
        parts = zip((x, y, y), in_weight.chunk(3), in_bias.chunk(3))
        q, k, v = (F.linear(t, w, b).unflatten(2, (1, 16)).transpose(1, 2) for t, w, b in parts)
        scores = 0.25 * (q @ k.mT)
        out = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)
        return F.linear(out, out_weight, out_bias)

    def norm(x, weight, bias):
        x = x - x.mean(dim=-1, keepdim=True)
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)
        return x * weight + bias

    x = q.transpose(1, 2).flatten(2)
    memory = k.transpose(1, 2).flatten(2)
    in_bias, out_bias, memory_in_bias, memory_out_bias, bias1, bias2 = biases.split(
        (48, 16, 48, 16, 32, 16), dim=-1
    )
    for i in range(1):
        z = x + attend(x, x, in_weight[i], in_bias[i], out_weight[i], out_bias[i])
        x = norm(z, *norms[i, 0:2])
        z = x + attend(
            x,
            memory,
            memory_in_weight[i],
            memory_in_bias[i],
            memory_out_weight[i],
            memory_out_bias[i],
        )
        x = norm(z, *norms[i, 2:4])
        z = x + F.linear(F.gelu(F.linear(x, weight1[i], bias1[i])), weight2[i], bias2[i])
        x = norm(z, *norms[i, 4:6])
    return x


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
in_weight = torch.randn(1, 48, 16) / 16 ** 0.5
out_weight = torch.randn(1, 16, 16) / 16 ** 0.5
memory_in_weight = torch.randn(1, 48, 16) / 16 ** 0.5
memory_out_weight = torch.randn(1, 16, 16) / 16 ** 0.5
weight1 = torch.randn(1, 32, 16) / 16 ** 0.5
weight2 = torch.randn(1, 16, 32) / 32 ** 0.5
biases = torch.randn(1, 176)
norms = torch.rand(1, 6, 16) + 0.5

out = attention(
    q,
    k,
    v,
    in_weight,
    out_weight,
    memory_in_weight,
    memory_out_weight,
    weight1,
    weight2,
    biases,
    norms,
)
expected = reference(
    q.double(),
    k.double(),
    v.double(),
    in_weight.double(),
    out_weight.double(),
    memory_in_weight.double(),
    memory_out_weight.double(),
    weight1.double(),
    weight2.double(),
    biases.double(),
    norms.double(),
)
error = (out - expected).abs().max().item()
assert error <= 1.43e-05, f"out is off by {error:.3g}"
