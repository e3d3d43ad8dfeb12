"""The order in which a deterministic backward pass adds to dq, which a BlockMask may hold.

Of each block of queries the blocks of keys that it sees are numbered, from the first or from the
last. `create_block_mask(compute_dq_write_order=True)` keeps these numbers for the partial and the
full blocks of each block of keys; slicing and `_adjust` make them anew.
"""

from __future__ import annotations

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec

_NUMBERED = {
    "ascending": "blocks.cumsum(-2) - blocks",
    "descending": "blocks.flip(-2).cumsum(-2).flip(-2) - blocks",
}


def arguments(spec: BlockMaskSpec) -> list[str]:
    """What `create_block_mask` is given for it; torch's order is the descending one."""
    if spec.dq_write_order == "none":
        return []
    ascending = ["dq_kv_order=False"] if spec.dq_write_order == "ascending" else []
    return ["compute_dq_write_order=True", *ascending]


def functions(spec: BlockMaskSpec) -> list[list[str]]:
    """What `statements` calls."""
    if spec.dq_write_order == "none":
        return []
    body = [
        "parts = [",
        "    (block_mask.q_num_blocks, block_mask.q_indices, block_mask.dq_write_order),",
        "    (block_mask.full_q_num_blocks, block_mask.full_q_indices, "
        "block_mask.dq_write_order_full),",
        "]",
        "parts = [part for part in parts if part[0] is not None]",
        "blocks, listed = 0, []",
        "for count, indices, _ in parts:  # of each block of keys, the blocks of queries",
        "    there = torch.arange(indices.shape[-1], device=count.device) < count[..., None]",
        "    listed.append(there)",
        "    blocks = blocks + torch.zeros_like(indices).scatter_add(",
        "        -1, indices.long(), there.to(indices.dtype)",
        "    )",
        f"order = {_NUMBERED[spec.dq_write_order]}",
        "for (_, indices, found), there in zip(parts, listed):",
        "    if not torch.equal(order.gather(-1, indices.long())[there], found[there].long()):",
        "        return False",
        "return True",
    ]
    return [["def in_write_order(block_mask):", *(f"    {line}" for line in body)]]


def statements(spec: BlockMaskSpec) -> tuple[list[str], list[str]]:
    """What looks at the order of `block_mask`, and what leaves no BlockMask where it was wrong. It
    looks at numbers, as what is compiled cannot."""
    if spec.dq_write_order == "none":
        return [], []
    return (
        ["in_order = in_write_order(block_mask)"],
        ["block_mask = block_mask if in_order else None"],
    )
