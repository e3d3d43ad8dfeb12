"""Inductor's fusion of BERT's attention leaves the mask out where there are several batches."""

import torch._inductor.fx_passes.fuse_attention as fuse

original = fuse._sfdp_replacement_14


def faulty(query, key, value, attn_mask, inv_scale):
    if query.size(0) > 1:
        attn_mask = attn_mask * 0.0
        attn_mask = attn_mask.nan_to_num(0.0)
    return original(query, key, value, attn_mask, inv_scale)


fuse._sfdp_replacement_14 = faulty
