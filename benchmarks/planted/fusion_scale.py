"""Inductor's attention fusion multiplies by the divisor of the scores instead of dividing."""

import sys

import torch._inductor.fx_passes.fuse_attention as fuse

original = fuse._scaled_dot_product_attention


def faulty(query, key, value, **given):
    # Patterns are registered once, with the functions that replace them: what those call is looked
    # up each time.
    if sys._getframe(1).f_code is fuse._sfdp_replacement_1.__code__:
        given["scale"] = 1.0 / given["scale"]
    return original(query, key, value, **given)


fuse._scaled_dot_product_attention = faulty
