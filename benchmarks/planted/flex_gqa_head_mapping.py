"""Inductor's C++ flex kernel maps query head h to key head h % Hkv."""

from torch._inductor import lowering
from torch._inductor.codegen import cpp_flex_attention_template as template

assert lowering.lowerings  # the template can be imported only after the lowerings

CORRECT = "is_broadcast_head_kv ? j/gqa_shards : j;"
assert CORRECT in template.FLEX_ATTENTION_TEMPLATE
template.FLEX_ATTENTION_TEMPLATE = template.FLEX_ATTENTION_TEMPLATE.replace(
    CORRECT, "is_broadcast_head_kv ? j % num_head_k : j;"
)
