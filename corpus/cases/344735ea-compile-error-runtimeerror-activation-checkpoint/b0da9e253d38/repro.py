"""compile_error at aot_eager: RuntimeError: Activation checkpoint rematerialization in
`forward-loss-backward` graph does not support RNG ops in recompute regions. Please move …"""

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def attention(q, k, v):
    return checkpoint(attend, q, k, v, use_reentrant=False)


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
