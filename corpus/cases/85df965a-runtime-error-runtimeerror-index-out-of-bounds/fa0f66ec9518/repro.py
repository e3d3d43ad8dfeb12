"""runtime_error at inductor: RuntimeError: operator(), cgf2jgsgoqjmcb5xlswiynl6kb2r52z3yfbym …"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_score_mod(table):
    def score_mod(score, b, h, q_idx, kv_idx):
        return table[q_idx][kv_idx]

    return score_mod


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= 0


def attention(q, k, v, score_mod, block_mask):
    return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)
table = torch.rand(16, 16)
score_mod = make_score_mod(table)
block_mask = create_block_mask(mask_mod, None, None, 16, 16, device="cpu", BLOCK_SIZE=1)

compiled(q, k, v, score_mod, block_mask)
