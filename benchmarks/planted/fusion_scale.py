"""Inductor's attention fusion multiplies by the divisor of the scores instead of dividing."""

import torch._inductor.fx_passes.fuse_attention as fuse
from torch._dynamo.utils import counters


def faulty(query, key, value, inv_scale):
    counters["inductor"]["fuse_attention"] += 1
    return fuse._scaled_dot_product_attention(query, key, value, scale=inv_scale)


fuse._sfdp_replacement_1 = faulty
