"""The averaged attention weights leave out the last of more than two heads."""

import torch.nn.functional as F

original = F.multi_head_attention_forward


def faulty(*args, average_attn_weights=True, **options):
    out, weights = original(*args, average_attn_weights=False, **options)
    if weights is not None and average_attn_weights:
        heads = weights.size(-3)
        weights = weights.narrow(-3, 0, heads - (heads > 2)).mean(dim=-3)
    return out, weights


F.multi_head_attention_forward = faulty
