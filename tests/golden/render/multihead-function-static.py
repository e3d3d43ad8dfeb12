import torch
import torch.nn.functional as F


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8)
    k = torch.randn(2, 4, 12, 8).requires_grad_()
    v = torch.randn(2, 4, 12, 8)
    in_weight = (torch.randn(96, 32) / 32 ** 0.5).requires_grad_()
    in_bias = torch.randn(96).requires_grad_()
    out_weight = (torch.randn(32, 32) / 32 ** 0.5).requires_grad_()
    out_bias = torch.randn(32).requires_grad_()
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(12)
    mask = q_idx >= kv_idx
    attn_mask = ~mask
    return q, k, v, in_weight, in_bias, out_weight, out_bias, attn_mask


def attention(q, k, v, in_weight, in_bias, out_weight, out_bias, attn_mask):
    query = q.permute(2, 0, 1, 3).flatten(2)
    key = k.permute(2, 0, 1, 3).flatten(2)
    value = v.permute(2, 0, 1, 3).flatten(2)
    out, weights = F.multi_head_attention_forward(
        query,
        key,
        value,
        32,
        4,
        in_weight,
        in_bias,
        None,
        None,
        False,
        0.0,
        out_weight,
        out_bias,
        attn_mask=attn_mask,
        average_attn_weights=False,
        static_k=k.flatten(0, 1),
        static_v=v.flatten(0, 1),
        training=False,
    )
    return out, weights


def reference(q, k, v, in_weight, in_bias, out_weight, out_bias, attn_mask):
    q = q.transpose(1, 2).flatten(2)
    q_weight, _, _ = in_weight.chunk(3)
    q_bias, _, _ = in_bias.chunk(3)
    q = F.linear(q, q_weight, q_bias).unflatten(2, (4, 8)).transpose(1, 2)
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(attn_mask, float("-inf"))
    return F.linear(
        (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2), out_weight, out_bias
    ).transpose(0, 1), torch.softmax(scores, dim=-1)


def run(fn, args):
    _, k, _, in_weight, in_bias, out_weight, out_bias, *_ = args
    out, weights = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dweights = torch.randn(weights.shape, generator=generator).to(weights.dtype)
    dk, din_weight, din_bias, dout_weight, dout_bias = torch.autograd.grad(
        (out, weights), (k, in_weight, in_bias, out_weight, out_bias), (dout, dweights)
    )
    return {
        "out": out,
        "weights": weights,
        "dk": dk,
        "din_weight": din_weight,
        "din_bias": din_bias,
        "dout_weight": dout_weight,
        "dout_bias": dout_bias,
    }
