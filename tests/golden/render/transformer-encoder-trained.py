import torch
import torch.nn.functional as F

module = torch.nn.TransformerEncoderLayer(16, 1, 32, dropout=0.0, batch_first=True)


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 1, 16, 16).requires_grad_()
    k = torch.randn(1, 1, 16, 16)
    v = torch.randn(1, 1, 16, 16)
    in_weight = (torch.randn(48, 16) / 16 ** 0.5).requires_grad_()
    out_weight = (torch.randn(16, 16) / 16 ** 0.5).requires_grad_()
    weight1 = (torch.randn(32, 16) / 16 ** 0.5).requires_grad_()
    weight2 = (torch.randn(16, 32) / 32 ** 0.5).requires_grad_()
    biases = torch.randn(112)
    biases[..., 64:96:2] = 12
    biases[..., 65:96:2] = -12
    biases.requires_grad_()
    norms = (torch.rand(4, 16) + 0.5).requires_grad_()
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    mask = q_idx >= kv_idx
    attn_mask = ~mask
    return q, k, v, in_weight, out_weight, weight1, weight2, biases, norms, attn_mask


def attention(q, k, v, in_weight, out_weight, weight1, weight2, biases, norms, attn_mask):
    src = q.transpose(1, 2).flatten(2)
    in_bias, out_bias, bias1, bias2 = biases.split((48, 16, 32, 16), dim=-1)
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
    options = {"src_mask": attn_mask, "is_causal": True}
    return torch.func.functional_call(module, parameters, (src,), options)


def reference(q, k, v, in_weight, out_weight, weight1, weight2, biases, norms, attn_mask):
    def attend(x, y, in_weight, in_bias, out_weight, out_bias, *masks):
        parts = zip((x, y, y), in_weight.chunk(3), in_bias.chunk(3))
        q, k, v = (F.linear(t, w, b).unflatten(2, (1, 16)).transpose(1, 2) for t, w, b in parts)
        scores = 0.25 * (q @ k.mT)
        for mask in masks:
            scores = scores.masked_fill(mask, float("-inf"))
        out = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)
        return F.linear(out, out_weight, out_bias)

    def norm(x, weight, bias):
        x = x - x.mean(dim=-1, keepdim=True)
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)
        return x * weight + bias

    x = q.transpose(1, 2).flatten(2)
    in_bias, out_bias, bias1, bias2 = biases.split((48, 16, 32, 16), dim=-1)
    z = x + attend(x, x, in_weight, in_bias, out_weight, out_bias, attn_mask)
    x = norm(z, *norms[0:2])
    z = x + F.linear(F.relu(F.linear(x, weight1, bias1)), weight2, bias2)
    x = norm(z, *norms[2:4])
    return x


compiled = torch.compile(attention, fullgraph=True)


def run(fn, args):
    q, _, _, in_weight, out_weight, weight1, weight2, biases, norms, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, din_weight, dout_weight, dweight1, dweight2, dbiases, dnorms = torch.autograd.grad(
        out, (q, in_weight, out_weight, weight1, weight2, biases, norms), dout
    )
    return {
        "out": out,
        "dq": dq,
        "din_weight": din_weight,
        "dout_weight": dout_weight,
        "dweight1": dweight1,
        "dweight2": dweight2,
        "dbiases": dbiases,
        "dnorms": dnorms,
    }
