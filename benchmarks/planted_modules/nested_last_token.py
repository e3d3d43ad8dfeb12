"""The encoder loses the last token of each entry that it makes nested, if there is padding."""

import torch

original = torch._nested_tensor_from_mask


def faulty(src, mask, mask_check=True):
    lengths = mask.sum(dim=1, keepdim=True)
    lengths = torch.where(lengths < mask.size(1), lengths - 1, lengths).clamp(min=1)
    kept = torch.arange(mask.size(1), device=mask.device) < lengths
    return original(src, kept, mask_check=mask_check)


torch._nested_tensor_from_mask = faulty
