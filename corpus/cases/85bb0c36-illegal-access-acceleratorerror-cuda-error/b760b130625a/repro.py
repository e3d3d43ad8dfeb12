"""illegal_access at eager: AcceleratorError: CUDA error: misaligned address"""

import torch
import torch.nn.functional as F

torch.set_default_device("cuda")


def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
k = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
q_idx = torch.arange(16)[:, None]
attn_mask = (q_idx >= 0).expand(1, 1, 16, 1)

attention(q, k, v, attn_mask)
torch.cuda.synchronize()
