"""graph_break at dynamo: graph of attention: expected whole, got Unsupported method call

The fault is planted, by the function at the top; torch does not have it."""


def opaque_builtin():
    """The kernel is a compiled builtin that dynamo cannot see into, as flash-attn's was when xDiT first
    compiled it (pybind11); here a C function pointer of ctypes stands for it."""

    import ctypes
    import sys
    import types

    import torch.nn.functional as F

    def kernel(arguments):
        q, k, v = arguments
        return F.scaled_dot_product_attention(q, k, v)

    BUILTIN = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(kernel)

    def attention(q, k, v):
        return BUILTIN((q, k, v))

    module = types.ModuleType("opaque_kernel")
    module.attention = attention
    sys.modules["opaque_kernel"] = module


opaque_builtin()

import torch
from opaque_kernel import attention as attention_function


def attention(q, k, v):
    return attention_function(q, k, v)


compiled = torch.compile(attention, backend="eager")

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
breaks = torch._dynamo.utils.counters["graph_break"]
assert not breaks, list(breaks)
