"""compile_error at dynamo: Unsupported: Attempted to call function marked as skipped"""

import torch
from transformers import LlamaConfig
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaAttention

sizes = {"hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16}
config = LlamaConfig(**sizes, attn_implementation="flex_attention")
module = LlamaAttention(config, 0).eval()


def attention(q, k, v):
    mask = create_causal_mask(config, q[:, 0], None, None)
    out, _ = flex_attention_forward(module, q, k, v, mask, scaling=module.scaling)
    return out.transpose(1, 2)


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
