"""no_valid_choices at inductor: NoValidChoicesError: No choices to select. Provided reason: No
choices exist for backend. please consider adding ATEN into max_autotune_gemm_backends …"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(document):
    def mask_mod(b, h, q_idx, kv_idx):
        return document[q_idx] == document[kv_idx]

    return mask_mod


def attention(q, k, v, document):
    document = -(-document)
    block_mask = create_block_mask(make_mask_mod(document), None, None, 16, 16, device="cpu")
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
document = torch.randint(2, (16,)).sort().values

compiled(q, k, v, document)
