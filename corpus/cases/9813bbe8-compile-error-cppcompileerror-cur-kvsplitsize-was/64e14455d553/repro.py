"""compile_error at inductor: CppCompileError: C++ compile error: error: ‘cur_kvSplitSize8’ w …"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def tree_intervals(size, branching):
    """Where a depth-first walk enters and leaves each node of a heap-ordered tree."""
    below = [1] * size
    for i in range(size - 1, 0, -1):
        below[(i - 1) // branching] += below[i]
    enter, free = [0] * size, [1] * size
    for i in range(1, size):
        parent = (i - 1) // branching
        enter[i] = free[parent]
        free[parent], free[i] = enter[i] + below[i], enter[i] + 1
    enter, below = torch.tensor(enter, dtype=torch.int64), torch.tensor(below, dtype=torch.int64)
    return enter, enter + below


def make_mask_mod(enter, leave, block_map):
    def mask_mod(b, h, q_idx, kv_idx):
        return (
            (enter[kv_idx] <= enter[q_idx]) & (leave[q_idx] <= leave[kv_idx])
            | block_map[q_idx // 16, kv_idx // 16]
        )

    return mask_mod


def attention(q, k, v, block_mask):
    return flex_attention(q, k, v, block_mask=block_mask)


compiled = torch.compile(attention, fullgraph=True)

for B, Lq, Lkv in [(1, 16, 16), (1, 17, 17)]:
    torch.manual_seed(0)
    q = torch.randn(B, 1, Lq, 16)
    k = torch.randn(B, 1, Lkv, 16)
    v = torch.randn(B, 1, Lkv, 16)
    enter, leave = tree_intervals(max(Lq, Lkv), 2)
    block_map = torch.rand(-(-Lq // 16), -(-Lkv // 16)) < 0.5
    block_mask = create_block_mask(
        make_mask_mod(enter, leave, block_map), None, None, Lq, Lkv, device="cpu"
    )
    compiled(q, k, v, block_mask)
