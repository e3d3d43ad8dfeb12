import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def tree_intervals(size, branching):
    """Where a depth-first walk enters and leaves each node of a heap-ordered tree."""
    below = [1] * size
    for i in range(size - 1, 0, -1):
        below[(i - 1) // branching] += below[i]
    enter, free = [0] * size, [1] * size
    for i in range(1, size):
        parent = (i - 1) // branching
        enter[i] = free[parent]
        free[parent], free[i] = enter[i] + below[i], enter[i] + 1
    enter, below = torch.tensor(enter, dtype=torch.int64), torch.tensor(below, dtype=torch.int64)
    return enter, enter + below


def make_score_mod(slopes, bias):
    def score_mod(score, b, h, q_idx, kv_idx):
        return 20.0 * torch.tanh((score + bias[h][q_idx] + slopes[h] * (kv_idx - q_idx)) / 20.0)

    return score_mod


def make_mask_mod(enter, leave):
    def mask_mod(b, h, q_idx, kv_idx):
        return (enter[kv_idx] <= enter[q_idx]) & (leave[q_idx] <= leave[kv_idx])

    return mask_mod


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8).requires_grad_()
    k = torch.randn(2, 2, 12, 8)
    v = torch.randn(2, 2, 12, 8)
    slopes = torch.exp2(-8 * torch.arange(1, 5) / 4)
    bias = torch.randn(4, 8).requires_grad_()
    enter, leave = tree_intervals(12, 2)
    return q, k, v, slopes, bias, enter, leave


def attention(q, k, v, slopes, bias, enter, leave):
    block_mask = create_block_mask(make_mask_mod(enter, leave), None, None, 8, 12, device="cpu")
    return flex_attention(
        q, k, v, score_mod=make_score_mod(slopes, bias), block_mask=block_mask, enable_gqa=True
    )


def reference(q, k, v, slopes, bias, enter, leave):
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = 8 ** -0.5 * (q @ k.mT)
    b = torch.arange(2)[:, None, None, None]
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(12)
    scores = torch.cat(
        [
            make_score_mod(slopes, bias)(
                scores[..., :, h : h + 1, :, :], b, h, q_idx, kv_idx
            ).expand_as(scores[..., :, h : h + 1, :, :]) for h in torch.arange(4)
        ],
        dim=-3,
    ).to(q.dtype)
    h = torch.arange(4)[:, None, None]
    scores = scores.masked_fill(~make_mask_mod(enter, leave)(b, h, q_idx, kv_idx), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


compiled = torch.compile(attention, mode="max-autotune")


def run(fn, args):
    q, _, _, _, bias, *_ = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    dq, dbias = torch.autograd.grad(out, (q, bias), dout)
    return {"out": out, "dq": dq, "dbias": dbias}
