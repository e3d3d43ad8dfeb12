"""compile_error at inductor: RuntimeError: aten::scaled_dot_product_attention() Expected a
value of type 'Optional[float]' for argument 'scale' but instead found type 'FakeTensor'."""

import torch
import torch.nn.functional as F


def attention(q, k, v, mask):
    scores = torch.matmul(q, k.transpose(-2, -1)) / torch.tensor(4.0, dtype=q.dtype)
    scores = scores + mask
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
q_idx = torch.arange(16)[:, None]
kv_idx = torch.arange(16)
mask = q_idx >= kv_idx
mask = torch.zeros(16, 16).masked_fill(~mask, float("-inf"))

compiled(q, k, v, mask)
