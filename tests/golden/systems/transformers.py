import torch
from transformers import LlamaConfig, StaticCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaAttention

sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
config = LlamaConfig(**sizes, attn_implementation="sdpa", num_hidden_layers=1)
module = LlamaAttention(config, 0).eval()


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    kept = (24 - 24 * ((torch.arange(2) + 1) % 3) // 3).clamp(min=1)[:, None]
    attention_mask = torch.arange(24) >= 24 - kept
    q_idx = torch.arange(24)[:, None] + 24 - 24
    kv_idx = torch.arange(24)
    seen = (kv_idx <= q_idx) & attention_mask[:, None, None, :]
    return q, k, v, attention_mask, seen


def attention(q, k, v, attention_mask, seen):
    cache = StaticCache(config=config, max_cache_len=24)
    mask = create_causal_mask(config, q[:, 0], attention_mask, cache)
    k, v = cache.update(k, v, 0)
    out, _ = sdpa_attention_forward(module, q, k, v, mask, scaling=module.scaling)
    return out.transpose(1, 2).masked_fill(~seen.any(dim=-1, keepdim=True), 0)


def reference(q, k, v, attention_mask, seen):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(~seen, float("-inf"))
    dead = (scores == float("-inf")).all(dim=-1, keepdim=True)
    probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)
    return probs @ v


def run(fn, args):
    return {"out": fn(*args)}
