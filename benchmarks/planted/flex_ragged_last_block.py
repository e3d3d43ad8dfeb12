"""Inductor's C++ flex kernel drops mask_mod in a ragged last key block."""

from torch._inductor import lowering
from torch._inductor.codegen import cpp_flex_attention_template as template

assert lowering.lowerings  # the template can be imported only after the lowerings

CORRECT = "if ((std::find("
assert CORRECT in template.FLEX_ATTENTION_TEMPLATE
template.FLEX_ATTENTION_TEMPLATE = template.FLEX_ATTENTION_TEMPLATE.replace(
    CORRECT, "if (cur_kvSplitSize == kvSplitSize && (std::find("
)
