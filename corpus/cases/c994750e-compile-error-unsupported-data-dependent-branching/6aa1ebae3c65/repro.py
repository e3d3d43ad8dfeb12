"""compile_error at dynamo: Unsupported: Data-dependent branching"""

import torch
from transformers import LlamaConfig
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaAttention

sizes = {"hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16}
config = LlamaConfig(**sizes, attn_implementation="flex_attention")
module = LlamaAttention(config, 0).eval()


def attention(q, k, v, attention_mask, seen):
    mask = create_causal_mask(config, q[:, 0], attention_mask, None)
    out, _ = flex_attention_forward(module, q, k, v, mask, scaling=module.scaling)
    return out.transpose(1, 2).masked_fill(~seen.any(dim=-1, keepdim=True), 0)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
kept = (16 - 16 * ((torch.arange(1) + 1) % 3) // 3).clamp(min=1)[:, None]
attention_mask = torch.arange(16) < kept
q_idx = torch.arange(16)[:, None]
kv_idx = torch.arange(16)
seen = (kv_idx <= q_idx) & attention_mask[:, None, None, :]

compiled(q, k, v, attention_mask, seen)
