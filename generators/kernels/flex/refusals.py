"""Refusals of flex_attention: on a CPU, and those that only its kernels for GPUs make."""

from __future__ import annotations

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.flex.conditions import (
    block_mask_of_other_length,
    blocks_below_16,
    compiled_block_mask_inside,
    indexes_block_mask,
    inductor_dtypes_differ,
    inductor_float64,
    inductor_head_dim_below_16,
    inductor_returns_lse,
    inductor_without_vectors,
    kernel_options,
    learnable_tables,
    no_full_blocks,
    no_tile_divides_blocks,
    odd_blocks,
    orders_writes,
    own_tiles,
    own_tiles_or_blocks,
    score_mod_without_score,
)
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD, MESH, ONE_DTYPE

FLEX: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"FlexAttention does not support backward on (CPU|MPS)\.",
        why="flex_attention has no backward on this device",
        needs=conditions.differentiates,
    ),
    Refusal(
        pattern=r"flex_attention backward requires the output of score_mod to depend on score",
        why="since torch 2.14 a score_mod that is differentiated must use its score",
        needs=score_mod_without_score,
    ),
    Refusal(
        pattern=r"Expect query and key/value to have the same number of heads but got Hq=",
        why="Hq != Hkv needs enable_gqa=True",
        needs=conditions.gqa_not_enabled,
    ),
    Refusal(
        pattern=r"block_mask was created for block_mask\.shape=\(.*\) but got q_len=\d+ and "
        r"kv_len=\d+\. As the block mask was created for a (smaller|larger) length",
        why="a BlockMask serves the lengths that it was made for",
        needs=block_mask_of_other_length,
    ),
    Refusal(
        pattern=r"Cannot use mask_mod from a sliced BlockMask",
        why="an indexed BlockMask has lost its mask_mod",
        needs=indexes_block_mask,
    ),
    Refusal(
        pattern=r"TypeError: (?:create_block_mask\(\) got an unexpected keyword argument |"
        r"Unexpected keyword arguments: \[)'separate_full_blocks'",
        why="this release's create_block_mask has no separate_full_blocks",
        needs=no_full_blocks,
    ),
    Refusal(
        pattern=r"TypeError: (?:create_block_mask\(\) got an unexpected keyword argument |"
        r"Unexpected keyword arguments: \[)'compute_dq_write_order'",
        why="this release's create_block_mask has no order of writes",
        needs=orders_writes,
    ),
    Refusal(
        pattern=r"Backward pass with mixed query, key, and value dtype is not supported",
        why="flex_attention trains with q, k and v of one dtype",
        needs=conditions.dtypes_may_differ,
    ),
    Refusal(
        pattern=r"torch\.compile on CPU only supports inference and `return_lse` is not supported",
        why="Inductor's flex_attention on CPU is inference without log-sum-exp",
        needs=inductor_returns_lse,
    ),
    Refusal(
        pattern=r"are supported in FlexAttention for CPU device\. "
        r"Found input tensors are `torch\.float64`",
        why="Inductor's flex_attention on CPU has no float64",
        needs=inductor_float64,
    ),
    Refusal(
        pattern=r"Mixed query, key, and value dtype is not supported on this platform",
        why="Inductor's flex_attention takes q, k and v of one dtype",
        needs=inductor_dtypes_differ,
    ),
    Refusal(
        pattern=r"torch\.compile on current platform is not supported for CPU",
        why="Inductor's flex_attention on CPU wants AVX2 or better on Linux",
        needs=conditions.inductor,
    ),
    Refusal(  # torch 2.13 asserts without a word what 2.14 says
        pattern=r"AssertionError: (?:trans_b requires \w+ or \w+ vec ISA, got .*)?\s*"
        r"target: flex_attention",
        why="Inductor's flex_attention on CPU wants vectors, which `cpp.simdlen` of 0 takes away",
        needs=inductor_without_vectors,
    ),
    Refusal(
        pattern=r"BACKEND='(TRITON_DECODE|FLASH)' (was specified )?but (flex_decoding|flash "
        r"attention) cannot be used",
        why="the kernel_options force a backend that cannot take these inputs",
        needs=kernel_options,
    ),
    Refusal(
        pattern=r"Invalid BACKEND value '|BACKEND cannot be combined with legacy|"
        r"OUTPUT_(LOGSUMEXP|MAX) must not be in kernel_options",
        why="the kernel_options are not valid",
        needs=kernel_options,
    ),
    Refusal(
        pattern=r"Q and KV block size must be divisible by BLOCK_M and BLOCK_N",
        why="the kernel's tiles do not divide the BlockMask's blocks",
        needs=own_tiles_or_blocks,
    ),
    Refusal(
        pattern=r"NoValidChoicesError: No choices to select\. Provided reason: No choices exist "
        r"for backend",
        why="none of the kernel's tiles divides the BlockMask's blocks",
        needs=no_tile_divides_blocks,
    ),
    Refusal(
        pattern=r"arange's range must be a power of 2",
        why="the kernel's tiles are powers of two, and must divide the BlockMask's blocks",
        needs=odd_blocks,
    ),
    Refusal(
        pattern=r"Input shapes should have M >= \d+, N >= \d+ and K >= 16",
        why="a GPU's tiles have at least 16 rows and columns, the BlockMask's blocks fewer",
        needs=blocks_below_16,
    ),
    Refusal(
        pattern=r"NYI: embedding dimension of the query, key, and value must be at least 16",
        why="flex_attention on a GPU takes head dimensions from 16 on",
        needs=inductor_head_dim_below_16,
    ),
    Refusal(
        pattern=r"AssertionError: (Query|Key) length must be greater than 0",
        why="flex_attention on a GPU takes no empty sequences",
        needs=conditions.empty_sequences,
    ),
    Refusal(
        pattern=r"Backward pass with mixed query, key, and value dtype is not supported",
        why="flex_attention's backward takes q, k and v of one dtype",
        needs=inductor_dtypes_differ,
    ),
    Refusal(
        pattern=r"out of resource: shared memory",
        why="the kernel_options ask for more shared memory than the device has",
        needs=own_tiles,
    ),
    Refusal(
        pattern=r"Using multiple indexing operations on the same tensor that requires gradients "
        r"in a score_mod function is not currently supported",
        why="a learnable table is indexed once in a score_mod",
        needs=learnable_tables,
    ),
    Refusal(
        pattern=r"attempted to apply meta conversion to view functorch tensor\s+"
        r"Higher Order Operator: torch\.ops\.higher_order\.flex_attention",
        why="flex_attention has no forward-mode derivative",
        needs=conditions.forward_mode,
    ),
    Refusal(
        pattern=r"IndexError: (max\(\): Expected reduction dim -?\d+ to have non-zero size"
        r"|select\(\): index 0 out of range for tensor of size \["
        r"|index is out of bounds for dimension with size 0)",
        why="flex_attention takes no empty sequences (its CUDA lowering says so in words)",
        needs=conditions.empty_sequences,
    ),
    Refusal(
        pattern=r"IndexError: select\(\): index 0 out of range for tensor of size \[0\]",
        why="vmap asks the first of a batch of numbers for its dtype, and an empty batch has none",
        needs=conditions.empty_batch,
    ),
    Refusal(
        pattern=r"Dynamo does not know how to trace the Python builtin `_warnings\.warn`",
        why="create_block_mask(_compile=True) is deprecated, and warns so where a graph cannot",
        needs=compiled_block_mask_inside,
    ),
)

REFUSALS: tuple[Refusal, ...] = (ONE_DTYPE, *FLEX, *AUTOGRAD, *MESH)
