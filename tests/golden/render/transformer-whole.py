import torch
import torch.nn.functional as F

module = torch.nn.Transformer(32, 4, 2, 2, 32, batch_first=True).eval()


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8)
    k = torch.randn(2, 4, 12, 8)
    v = torch.randn(2, 4, 12, 8)
    source_in_weight = torch.randn(2, 96, 32) / 32 ** 0.5
    source_out_weight = torch.randn(2, 32, 32) / 32 ** 0.5
    source_weight1 = torch.randn(2, 32, 32) / 32 ** 0.5
    source_weight2 = torch.randn(2, 32, 32) / 32 ** 0.5
    source_biases = torch.randn(2, 192)
    source_norms = torch.rand(2, 4, 32) + 0.5
    source_final_norm = torch.rand(2, 32) + 0.5
    in_weight = torch.randn(2, 96, 32) / 32 ** 0.5
    out_weight = torch.randn(2, 32, 32) / 32 ** 0.5
    memory_in_weight = torch.randn(2, 96, 32) / 32 ** 0.5
    memory_out_weight = torch.randn(2, 32, 32) / 32 ** 0.5
    weight1 = torch.randn(2, 32, 32) / 32 ** 0.5
    weight2 = torch.randn(2, 32, 32) / 32 ** 0.5
    biases = torch.randn(2, 320)
    norms = torch.rand(2, 6, 32) + 0.5
    final_norm = torch.rand(2, 32) + 0.5
    attn_mask = torch.nn.Transformer.generate_square_subsequent_mask(8)
    padded = torch.arange(12) >= (12 - 12 * ((torch.arange(2) + 1) % 3)[:, None] // 3).clamp(min=1)
    memory_key_padding_mask = torch.zeros(padded.shape).masked_fill(padded, float("-inf"))
    later = torch.arange(12)[:, None] < torch.arange(12)
    source_mask = torch.zeros(later.shape).masked_fill(later, float("-inf"))
    padded = torch.arange(12) >= (12 - 12 * ((torch.arange(2) + 1) % 3)[:, None] // 3).clamp(min=1)
    source_key_padding_mask = torch.zeros(padded.shape).masked_fill(padded, float("-inf"))
    return (
        q,
        k,
        v,
        source_in_weight,
        source_out_weight,
        source_weight1,
        source_weight2,
        source_biases,
        source_norms,
        source_final_norm,
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
        memory_key_padding_mask,
        source_mask,
        source_key_padding_mask,
    )


def attention(
    q,
    k,
    v,
    source_in_weight,
    source_out_weight,
    source_weight1,
    source_weight2,
    source_biases,
    source_norms,
    source_final_norm,
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
    memory_key_padding_mask,
    source_mask,
    source_key_padding_mask,
):
    tgt = q.transpose(1, 2).flatten(2)
    src = k.transpose(1, 2).flatten(2)
    source_in_bias, source_out_bias, source_bias1, source_bias2 = source_biases.split(
        (96, 32, 32, 32), dim=-1
    )
    in_bias, out_bias, memory_in_bias, memory_out_bias, bias1, bias2 = biases.split(
        (96, 32, 96, 32, 32, 32), dim=-1
    )
    layer = {
        "self_attn.in_proj_weight": source_in_weight,
        "self_attn.out_proj.weight": source_out_weight,
        "linear1.weight": source_weight1,
        "linear2.weight": source_weight2,
        "self_attn.in_proj_bias": source_in_bias,
        "self_attn.out_proj.bias": source_out_bias,
        "linear1.bias": source_bias1,
        "linear2.bias": source_bias2,
        "norm1.weight": source_norms[:, 0],
        "norm1.bias": source_norms[:, 1],
        "norm2.weight": source_norms[:, 2],
        "norm2.bias": source_norms[:, 3],
    }
    parameters = {f"encoder.layers.{i}.{name}": t[i] for i in range(2) for name, t in layer.items()}
    parameters |= {
        "encoder.norm.weight": source_final_norm[0], "encoder.norm.bias": source_final_norm[1]
    }
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
    parameters |= {
        f"decoder.layers.{i}.{name}": t[i] for i in range(2) for name, t in layer.items()
    }
    parameters |= {"decoder.norm.weight": final_norm[0], "decoder.norm.bias": final_norm[1]}
    options = {
        "tgt_mask": attn_mask,
        "memory_key_padding_mask": memory_key_padding_mask,
        "src_mask": source_mask,
        "src_key_padding_mask": source_key_padding_mask,
        "tgt_is_causal": True,
        "src_is_causal": True,
    }
    return torch.func.functional_call(module, parameters, (src, tgt), options)


def reference(
    q,
    k,
    v,
    source_in_weight,
    source_out_weight,
    source_weight1,
    source_weight2,
    source_biases,
    source_norms,
    source_final_norm,
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
    memory_key_padding_mask,
    source_mask,
    source_key_padding_mask,
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

    source_in_bias, source_out_bias, source_bias1, source_bias2 = source_biases.split(
        (96, 32, 32, 32), dim=-1
    )
    in_bias, out_bias, memory_in_bias, memory_out_bias, bias1, bias2 = biases.split(
        (96, 32, 96, 32, 32, 32), dim=-1
    )
    x = k.transpose(1, 2).flatten(2)
    for i in range(2):
        z = x + attend(
            x,
            x,
            source_in_weight[i],
            source_in_bias[i],
            source_out_weight[i],
            source_out_bias[i],
            source_mask,
            source_key_padding_mask[:, None, None],
        )
        x = norm(z, *source_norms[i, 0:2])
        z = x + F.linear(
            F.relu(F.linear(x, source_weight1[i], source_bias1[i])),
            source_weight2[i],
            source_bias2[i],
        )
        x = norm(z, *source_norms[i, 2:4])
    x = norm(x, *source_final_norm)
    memory = x
    x = q.transpose(1, 2).flatten(2)
    for i in range(2):
        z = x + attend(x, x, in_weight[i], in_bias[i], out_weight[i], out_bias[i], attn_mask)
        x = norm(z, *norms[i, 0:2])
        z = x + attend(
            x,
            memory,
            memory_in_weight[i],
            memory_in_bias[i],
            memory_out_weight[i],
            memory_out_bias[i],
            memory_key_padding_mask[:, None, None],
        )
        x = norm(z, *norms[i, 2:4])
        z = x + F.linear(F.relu(F.linear(x, weight1[i], bias1[i])), weight2[i], bias2[i])
        x = norm(z, *norms[i, 4:6])
    x = norm(x, *final_norm)
    return x


def run(fn, args):
    return {"out": fn(*args)}
