"""runtime_error at eager: RuntimeError: view size is not compatible with input tensor's size
and stride (at least one dimension spans across two contiguous subspaces). Use …"""

import torch
import torch.nn.functional as F

torch.set_default_device("cuda")


def nested(t, offsets):
    parts = list(t[0].split(offsets.diff().tolist(), dim=1))
    return torch.nested.as_nested_tensor(parts)


def attention(q, k, v, offsets_q, offsets_kv):
    out = F.scaled_dot_product_attention(
        nested(q, offsets_q), nested(k, offsets_kv), nested(v, offsets_kv)
    )
    return torch.cat(out.unbind(), dim=1)[None]


torch.manual_seed(0)
q = torch.randn(1, 2, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
k = torch.randn(1, 2, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
v = torch.randn(1, 2, 16, 16, dtype=torch.bfloat16, device="cpu").to("cuda")
offsets_q = torch.tensor([0, 16])
offsets_kv = torch.tensor([0, 16])

attention(q, k, v, offsets_q, offsets_kv)
torch.cuda.synchronize()
