"""runtime_error at eager: RuntimeError: The size of tensor a (32) must match the size of
tensor b (16) at non-singleton dimension 3"""

import torch
from transformers import DynamicCache, LlamaConfig
from transformers.masking_utils import create_sliding_window_causal_mask
from transformers.models.llama.modeling_llama import LlamaAttention, eager_attention_forward

sizes = {"hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16}
config = LlamaConfig(**sizes, attn_implementation="eager", sliding_window=1, num_hidden_layers=1)
module = LlamaAttention(config, 0).eval()


def attention(q, k, v):
    cache = DynamicCache(config=config)
    cache.update(k[:, :, :16], v[:, :, :16], 0)
    mask = create_sliding_window_causal_mask(config, q[:, 0], None, cache)
    k, v = cache.update(k[:, :, 16:], v[:, :, 16:], 0)
    out, _ = eager_attention_forward(module, q, k, v, mask, scaling=module.scaling)
    return out.transpose(1, 2)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 32, 16)
v = torch.randn(1, 1, 32, 16)

attention(q, k, v)
