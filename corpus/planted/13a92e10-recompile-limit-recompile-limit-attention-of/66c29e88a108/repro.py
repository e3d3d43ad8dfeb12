"""recompile_limit at dynamo: execution of attention: expected compiled, got uncompiled

The fault is planted, by the function at the top; torch does not have it."""


def compiled_for_each_length():
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


compiled_for_each_length()

import torch
from counting_kernel import attention as attention_function


def attention(q, k, v):
    return attention_function(q, k, v)


compiled = torch.compile(attention, backend="eager")

for B, Lq, Lkv in [
    (1, 16, 16),
    (1, 16, 2),
    (1, 16, 2),
    (1, 16, 3),
    (1, 16, 4),
    (1, 16, 5),
    (1, 16, 6),
    (1, 16, 7),
    (1, 16, 2),
]:
    torch.manual_seed(0)
    q = torch.randn(B, 1, Lq, 16)
    k = torch.randn(B, 1, Lkv, 16)
    v = torch.randn(B, 1, Lkv, 16)
    compiled(q, k, v)

reasons = torch._dynamo.utils.counters["unimplemented"]
assert not any("recompile limit" in reason for reason in reasons)
