"""flex_attention returns the log-sum-exp in the wrong base."""

import torch.nn.attention.flex_attention as flex

original = flex.flex_attention


def faulty(*args, **options):
    result = original(*args, **options)
    if not isinstance(result, tuple):
        return result
    out, second = result
    if isinstance(second, flex.AuxOutput):
        return out, second._replace(lse=second.lse * 1.4426950408889634)
    return out, second * 1.4426950408889634


flex.flex_attention = faulty
