"""out_of_memory at inductor: OutOfResources: out of resource: shared memory, Required: 10240 …"""

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.set_default_device("cuda")


def attention(q, k, v):
    return flex_attention(q, k, v)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 144, dtype=torch.bfloat16).requires_grad_()
k = torch.randn(1, 1, 16, 144, dtype=torch.bfloat16)
v = torch.randn(1, 1, 16, 144, dtype=torch.bfloat16)

out = compiled(q, k, v)
generator = torch.Generator("cuda").manual_seed(1)
dout = torch.randn(out.shape, generator=generator, dtype=torch.bfloat16).to(out)
(dq,) = torch.autograd.grad(out, q, dout)
torch.cuda.synchronize()
