"""Inductor's C++ flex kernel forgets to rescale the first key block's part of the result."""

from torch._inductor import lowering
from torch._inductor.codegen import cpp_flex_attention_template as template

assert lowering.lowerings  # the template can be imported only after the lowerings

CORRECT = "if (n_idx > 0) {\n              at::vec::map"
assert CORRECT in template.FLEX_ATTENTION_TEMPLATE
template.FLEX_ATTENTION_TEMPLATE = template.FLEX_ATTENTION_TEMPLATE.replace(
    CORRECT, CORRECT.replace("n_idx > 0", "n_idx > 1")
)
