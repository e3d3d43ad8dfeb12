"""The kernel keeps the longest length that it has met as a Python number, which dynamo takes for a
constant: every longer sequence compiles anew, until the limit is met and nothing is compiled."""

import sys
import types

import torch.nn.functional as F

longest = {"kv_len": 0}


def attention(q, k, v):
    longest["kv_len"] += 1
    return F.scaled_dot_product_attention(q, k, v) * (longest["kv_len"] ** 0)


module = types.ModuleType("counting_kernel")
module.attention = attention
sys.modules["counting_kernel"] = module
