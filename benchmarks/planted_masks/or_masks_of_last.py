"""or_masks of two masks or more leaves out the first."""

import torch.nn.attention.flex_attention as flex

original = flex.or_masks


def faulty(*mask_mods):
    return original(*mask_mods[1:]) if len(mask_mods) > 1 else original(*mask_mods)


flex.or_masks = faulty
