import torch
from transformers import LlamaConfig
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.masking_utils import create_chunked_causal_mask
from transformers.models.llama.modeling_llama import LlamaAttention

sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
config = LlamaConfig(**sizes, attn_implementation="flex_attention", attention_chunk_size=4)
module = LlamaAttention(config, 0).eval()


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    q_idx = torch.arange(24)[:, None]
    kv_idx = torch.arange(24)
    seen = (kv_idx <= q_idx) & (kv_idx // 4 == q_idx // 4)
    return q, k, v, seen


def attention(q, k, v, seen):
    mask = create_chunked_causal_mask(config, q[:, 0], None, None)
    out, _ = flex_attention_forward(module, q, k, v, mask, scaling=module.scaling)
    return out.transpose(1, 2)


def reference(q, k, v, seen):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}
