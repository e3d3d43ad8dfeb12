import torch
import torch.nn.functional as F

layer = torch.nn.TransformerDecoderLayer(32, 4, 32, activation="gelu", norm_first=True)
module = torch.nn.TransformerDecoder(layer, 2, norm=torch.nn.LayerNorm(32)).eval()


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8)
    k = torch.randn(2, 4, 12, 8)
    v = torch.randn(2, 4, 12, 8)
    in_weight = torch.randn(2, 96, 32) / 32 ** 0.5
    out_weight = torch.randn(2, 32, 32) / 32 ** 0.5
    memory_in_weight = torch.randn(2, 96, 32) / 32 ** 0.5
    memory_out_weight = torch.randn(2, 32, 32) / 32 ** 0.5
    weight1 = torch.randn(2, 32, 32) / 32 ** 0.5
    weight2 = torch.randn(2, 32, 32) / 32 ** 0.5
    biases = torch.randn(2, 320)
    norms = torch.rand(2, 6, 32) + 0.5
    final_norm = torch.rand(2, 32) + 0.5
    document = torch.randint(2, (2, 8)).sort().values
    b = torch.arange(2)[:, None, None, None]
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(8)
    mask = (document[b, q_idx] == document[b, kv_idx]).expand(2, 4, 8, 8)
    attn_mask = torch.zeros(mask.flatten(0, 1).shape).masked_fill(
        ~mask.flatten(0, 1), float("-inf")
    )
    attn_mask -= (torch.arange(8)[:, None] - torch.arange(8)).abs() / 8
    later = torch.arange(8)[:, None] < torch.arange(12)
    memory_mask = torch.zeros(later.shape).masked_fill(later, float("-inf"))
    padded = torch.arange(12) >= (12 - 12 * ((torch.arange(2) + 1) % 3)[:, None] // 3).clamp(min=1)
    memory_key_padding_mask = torch.zeros(padded.shape).masked_fill(padded, float("-inf"))
    return (
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
        final_norm,
        attn_mask,
        memory_mask,
        memory_key_padding_mask,
    )


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
    final_norm,
    attn_mask,
    memory_mask,
    memory_key_padding_mask,
):
    tgt = q.permute(2, 0, 1, 3).flatten(2)
    memory = k.permute(2, 0, 1, 3).flatten(2)
    in_bias, out_bias, memory_in_bias, memory_out_bias, bias1, bias2 = biases.split(
        (96, 32, 96, 32, 32, 32), dim=-1
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
    parameters = {f"layers.{i}.{name}": t[i] for i in range(2) for name, t in layer.items()}
    parameters |= {"norm.weight": final_norm[0], "norm.bias": final_norm[1]}
    options = {
        "tgt_mask": attn_mask,
        "memory_mask": memory_mask,
        "memory_key_padding_mask": memory_key_padding_mask,
    }
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
    final_norm,
    attn_mask,
    memory_mask,
    memory_key_padding_mask,
):
    def attend(x, y, in_weight, in_bias, out_weight, out_bias, *masks):
        parts = zip((x, y, y), in_weight.chunk(3), in_bias.chunk(3))
        q, k, v = (F.linear(t, w, b).unflatten(2, (4, 8)).transpose(1, 2) for t, w, b in parts)
        scores = 8 ** -0.5 * (q @ k.mT)
        for mask in masks:
            scores = scores + mask
        out = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)
        return F.linear(out, out_weight, out_bias)

    def norm(x, weight, bias):
        x = x - x.mean(dim=-1, keepdim=True)
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)
        return x * weight + bias

    x = q.transpose(1, 2).flatten(2)
    memory = k.transpose(1, 2).flatten(2)
    in_bias, out_bias, memory_in_bias, memory_out_bias, bias1, bias2 = biases.split(
        (96, 32, 96, 32, 32, 32), dim=-1
    )
    for i in range(2):
        y = norm(x, *norms[i, 0:2])
        x = x + attend(
            y,
            y,
            in_weight[i],
            in_bias[i],
            out_weight[i],
            out_bias[i],
            attn_mask.unflatten(0, (2, 4)),
        )
        y = norm(x, *norms[i, 2:4])
        x = x + attend(
            y,
            memory,
            memory_in_weight[i],
            memory_in_bias[i],
            memory_out_weight[i],
            memory_out_bias[i],
            memory_mask,
            memory_key_padding_mask[:, None, None],
        )
        y = norm(x, *norms[i, 4:6])
        x = x + F.linear(F.gelu(F.linear(y, weight1[i], bias1[i])), weight2[i], bias2[i])
    x = norm(x, *final_norm)
    return x.transpose(0, 1)


def run(fn, args):
    return {"out": fn(*args)}
