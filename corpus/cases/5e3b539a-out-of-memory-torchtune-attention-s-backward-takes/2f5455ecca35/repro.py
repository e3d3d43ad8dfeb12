"""out_of_memory at inductor: OutOfResources: out of resource: shared memory, Required: 102400,
Hardware limit: 101376. Reducing block sizes or `num_stages` may help.

For NVIDIA A10: found by attnfuzz's virtual-sm86, not run on such a device yet."""

import torch
from torchtune.modules.attention_utils import _sdpa_or_flex_attention, packed_block_causal_mask

torch.set_default_device("cuda")

attention_call = _sdpa_or_flex_attention()


def attention(q, k, v, mask):
    return attention_call(q, k, v, mask, dropout_p=0.0, is_causal=False)


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 144, dtype=torch.bfloat16).requires_grad_()
k = torch.randn(1, 1, 16, 144, dtype=torch.bfloat16)
v = torch.randn(1, 1, 16, 144, dtype=torch.bfloat16)
lengths = torch.tensor([0, 5, 16]).diff()
seq_lens = [lengths]
mask = packed_block_causal_mask(seq_lens)

out = attention(q, k, v, mask)
dout = torch.randn(out.shape, dtype=out.dtype)
(dq,) = torch.autograd.grad(out, q, dout)
torch.cuda.synchronize()
