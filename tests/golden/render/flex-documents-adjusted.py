import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention


def make_mask_mod(document):
    def mask_mod(b, h, q_idx, kv_idx):
        return (document[b, q_idx] == document[b, kv_idx]) & (q_idx >= kv_idx)

    return mask_mod


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 8)
    k = torch.randn(2, 2, 12, 8)
    v = torch.randn(2, 2, 12, 8)
    document = torch.randint(2, (3, 12)).sort().values
    mask_mod = make_mask_mod(document)
    block_mask = create_block_mask(mask_mod, 3, None, 12, 12, device="cpu", BLOCK_SIZE=(16, 32))
    block_mask = block_mask[:2]
    block_mask.mask_mod = mask_mod  # slicing drops it
    block_mask = block_mask._adjust(8, 12)
    return q, k, v, block_mask


def attention(q, k, v, block_mask):
    out, aux = flex_attention(
        q,
        k,
        v,
        block_mask=block_mask,
        enable_gqa=True,
        kernel_options={"BLOCK_M": 16},
        return_aux=AuxRequest(lse=True),
    )
    return out, aux.lse


def reference(q, k, v, block_mask):
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = 8 ** -0.5 * (q @ k.mT)
    b = torch.arange(2)[:, None, None, None]
    h = torch.arange(4)[:, None, None]
    q_idx = torch.arange(8)[:, None]
    kv_idx = torch.arange(12)
    scores = scores.masked_fill(~block_mask.mask_mod(b, h, q_idx, kv_idx), float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v, scores.logsumexp(dim=-1)


def run(fn, args):
    with torch.no_grad():
        out, lse = fn(*args)
        return {"out": out, "lse": lse}
