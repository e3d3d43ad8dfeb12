"""The gradient of bias_v is halved."""

import torch.nn.functional as F

original = F.multi_head_attention_forward


def faulty(query, key, value, width, heads, weight, bias, bias_k, bias_v, *args, **options):
    if bias_v is not None:
        bias_v = 0.5 * bias_v + 0.5 * bias_v.detach()
    given = (query, key, value, width, heads, weight, bias, bias_k, bias_v, *args)
    return original(*given, **options)


F.multi_head_attention_forward = faulty
