"""The kernel counts its calls in a Python number, which dynamo takes for a constant: every further
call compiles anew, until the limit is met and nothing is compiled."""

import sys
import types

import torch.nn.functional as F

count = {"calls": 0}


def attention(q, k, v):
    count["calls"] += 1
    return F.scaled_dot_product_attention(q, k, v) * (count["calls"] ** 0)


module = types.ModuleType("counting_kernel")
module.attention = attention
sys.modules["counting_kernel"] = module
