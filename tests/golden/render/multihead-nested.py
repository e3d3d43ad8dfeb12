import torch
import torch.nn.functional as F

module = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8)
    k = torch.randn(2, 4, 8, 8)
    v = torch.randn(2, 4, 8, 8)
    in_weight = torch.randn(96, 32) / 32 ** 0.5
    in_bias = torch.randn(96)
    out_weight = torch.randn(32, 32) / 32 ** 0.5
    out_bias = torch.randn(32)
    lengths = (8 - 8 * ((torch.arange(2) + 1) % 3) // 3).clamp(min=1)
    return q, k, v, in_weight, in_bias, out_weight, out_bias, lengths


def attention(q, k, v, in_weight, in_bias, out_weight, out_bias, lengths):
    query = q.transpose(1, 2).flatten(2)
    query = torch.nested.as_nested_tensor([entry[:n] for entry, n in zip(query, lengths.tolist())])
    parameters = {
        "in_proj_weight": in_weight,
        "in_proj_bias": in_bias,
        "out_proj.weight": out_weight,
        "out_proj.bias": out_bias,
    }
    options = {"need_weights": False}
    out, _ = torch.func.functional_call(module, parameters, (query, query, query), options)
    return out.to_padded_tensor(0.0, (2, 8, 32))


def reference(q, k, v, in_weight, in_bias, out_weight, out_bias, lengths):
    q = k = v = q.transpose(1, 2).flatten(2)
    q_weight, k_weight, v_weight = in_weight.chunk(3)
    q_bias, k_bias, v_bias = in_bias.chunk(3)
    q = F.linear(q, q_weight, q_bias).unflatten(2, (4, 8)).transpose(1, 2)
    k = F.linear(k, k_weight, k_bias).unflatten(2, (4, 8)).transpose(1, 2)
    v = F.linear(v, v_weight, v_bias).unflatten(2, (4, 8)).transpose(1, 2)
    scores = 8 ** -0.5 * (q @ k.mT)
    padded = torch.arange(8) >= lengths[:, None]
    scores = scores.masked_fill(padded[:, None, None], float("-inf"))
    return F.linear(
        (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), out_weight, out_bias
    ).masked_fill(padded[..., None], 0)


def run(fn, args):
    return {"out": fn(*args)}
