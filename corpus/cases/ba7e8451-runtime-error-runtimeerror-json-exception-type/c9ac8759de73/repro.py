"""runtime_error at inductor: RuntimeError: [json.exception.type_error.302] type must be
number, but is string"""

import torch
import torch.nn.functional as F


def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


class Attention(torch.nn.Module):
    def forward(self, q, k, v, attn_mask):
        return attention(q, k, v, attn_mask)


loaded = []


def compiled(q, k, v, attn_mask):
    if not loaded:
        exported = torch.export.export(Attention(), (q, k, v, attn_mask))
        path = torch._inductor.aoti_compile_and_package(
            exported, inductor_configs={"fallback_by_default": True}
        )
        loaded.append(torch._inductor.aoti_load_package(path))
    return loaded[0](q, k, v, attn_mask)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
q_idx = torch.arange(16)[:, None]
attn_mask = (q_idx >= 0).expand(1, 1, 16, 16)

compiled(q, k, v, attn_mask)
