"""Inductor's fusion of BERT's attention leaves the mask out where there are several batches."""

import sys

import torch._inductor.fx_passes.fuse_attention as fuse

original = fuse._scaled_dot_product_attention


def faulty(query, key, value, attn_mask=None, **given):
    # Patterns are registered once, with the functions that replace them: what those call is looked
    # up each time.
    of_bert = sys._getframe(1).f_code is fuse._sfdp_replacement_14.__code__
    if of_bert and query.size(0) > 1:
        attn_mask = attn_mask * 0.0
        attn_mask = attn_mask.nan_to_num(0.0)
    return original(query, key, value, attn_mask=attn_mask, **given)


fuse._scaled_dot_product_attention = faulty
