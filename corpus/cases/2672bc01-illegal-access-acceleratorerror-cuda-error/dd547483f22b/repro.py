"""illegal_access at eager: AcceleratorError: CUDA error: misaligned address"""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.set_default_device("cuda")


def attention(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 17, dtype=torch.bfloat16, device="cpu").to("cuda")[:, :, :, 1:]
k = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")

attention(q, k, v)
torch.cuda.synchronize()
