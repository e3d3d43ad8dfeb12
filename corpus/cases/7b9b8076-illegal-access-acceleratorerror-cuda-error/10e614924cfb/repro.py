"""illegal_access at eager: AcceleratorError: CUDA error: misaligned address"""

import torch
from torch.nn.attention.varlen import varlen_attn

torch.set_default_device("cuda")


def attention(q, k, v, cu_seq_q, cu_seq_k):
    out = varlen_attn(
        q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1), cu_seq_q, cu_seq_k, 11, 11
    )
    return out.transpose(0, 1)[None]


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
k = torch.randn(1, 1, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
v = torch.randn(1, 1, 16, 17, dtype=torch.bfloat16, device="cpu").to("cuda")[:, :, :, 1:]
cu_seq_q = torch.tensor([0, 5, 16], dtype=torch.int32)
cu_seq_k = torch.tensor([0, 5, 16], dtype=torch.int32)

attention(q, k, v, cu_seq_q, cu_seq_k)
torch.cuda.synchronize()
