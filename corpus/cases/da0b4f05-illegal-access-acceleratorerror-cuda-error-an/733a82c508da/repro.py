"""illegal_access at eager: AcceleratorError: CUDA error: an illegal memory access was
encountered"""

import torch
import torch.nn.functional as F

torch.set_default_device("cuda")


def attention(q, k, v, attn_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
k = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, device="cpu").to("cuda")
q_idx = torch.arange(16)[:, None]
mask = (q_idx >= 0).expand(1, 1, 16, 16)
attn_mask = torch.zeros(1, 1, 16, 16).masked_fill(~mask, float("-inf")).requires_grad_()

out = attention(q, k, v, attn_mask)
dout = torch.randn(out.shape, dtype=out.dtype, device="cpu").to("cuda")
(dattn_mask,) = torch.autograd.grad(out, attn_mask, dout)
torch.cuda.synchronize()
