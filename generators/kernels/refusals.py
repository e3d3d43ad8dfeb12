"""Refusals by design: clear errors with which torch declines what a program asks for.

An exception that matches one of a program's refusals is an outcome `rejected`, not a failure. A
pattern that says too much hides bugs, so each quotes a whole clause of one message, and `needs`
limits it to the programs that ask for what is declined: "No available kernel" is by design when a
backend was forced, and a bug when torch chose.

Texts are those of torch 2.11 to 2.13.
"""

from __future__ import annotations

from attnfuzz.generators.kernels import asks
from attnfuzz.generators.kernels.refusal import (  # fmt: skip
    ANY,
    COMPILE,
    HAND,
    MESHED,
    OWN,
    SDPA,
    Refusal,
)
from attnfuzz.generators.kernels.refusals_flex import FLEX_ROWS
from attnfuzz.generators.model.program import Program

_SDPA_ROWS: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"Expected query, key, and value to have the same dtype, but got query\.dtype: ",
        why="SDPA and flex_attention take q, k and v of one dtype",
        kernels=("sdpa", "flex", "function"),
        needs=asks.dtypes_may_differ,
    ),
    Refusal(
        pattern=r"Expected attn_mask dtype to be bool or float or to match query dtype",
        why="an additive attn_mask has q's dtype",
        kernels=SDPA,
        needs=asks.mask_dtype_may_differ,
    ),
    Refusal(
        pattern=r"Explicit attn_mask should not be set when is_causal=True",
        why="is_causal and attn_mask exclude each other",
        kernels=OWN,
    ),
    Refusal(
        pattern=r"No available kernel\.\s+Aborting execution",
        why="the forced SDPA backend has no kernel for these inputs",
        kernels=SDPA,
        needs=asks.forces_fused_backend,
        thread="pytorch/torchtitan#1034",
    ),
    Refusal(
        pattern=r"No viable backend for scaled_dot_product_attention was found",
        why="the forced SDPA backend has no kernel for these inputs",
        kernels=SDPA,
        needs=asks.forces_fused_backend,
        thread="pytorch/torchtitan#1034",
    ),
    Refusal(
        pattern=r"Number of heads in key and value must divide the number of heads in",
        why="grouped queries need Hq to be a multiple of Hkv",
        kernels=OWN,
    ),
    Refusal(
        pattern=r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\) "
        r"at non-singleton dimension 1\b",
        why="Hq != Hkv needs enable_gqa=True",
        kernels=SDPA,
        needs=asks.gqa_not_enabled,
    ),
    Refusal(
        pattern=r"Expected query, key, and value to all be  at least 2 dimensional",
        why="SDPA takes tensors of two dimensions or more",
        kernels=OWN,
    ),
    Refusal(
        pattern=r"dropout probability has to be between 0 and 1",
        why="a dropout probability is between 0 and 1",
        kernels=OWN,
    ),
    Refusal(
        pattern=r"derivative for aten::_scaled_dot_product_(flash|efficient|cudnn)_attention"
        r"(_for_cpu)?_backward is not implemented",
        why="the fused SDPA kernels have no second derivative",
        kernels=SDPA,
        needs=asks.differentiates_twice,
        thread="pytorch/pytorch#116350",
    ),
    Refusal(
        pattern=r"Trying to use forward AD with _scaled_dot_product_\w+ that does not support it",
        why="the fused SDPA kernels have no forward-mode derivative",
        kernels=SDPA,
        needs=asks.forward_mode,
        thread="pytorch/pytorch#128971",
    ),
)

_HANDWRITTEN_ROWS: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"expected m1 and m2 to have the same dtype|mat1 and mat2 must have the same dtype|"
        r"expected scalar type \S+ but found \S+|both inputs should have same dtype",
        why="matrix products take operands of one dtype",
        kernels=HAND,
        needs=asks.products_dtypes_may_differ,
    ),
    Refusal(
        pattern=r"a?max\(\): Expected reduction dim -?\d+ to have non-zero size",
        why="a maximum over no keys is not defined",
        kernels=HAND,
        needs=asks.exp_sum_over_nothing,
    ),
)

_AUTOGRAD_ROWS: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"When use_reentrant=True, torch\.utils\.checkpoint is incompatible with \.grad",
        why="reentrant checkpointing does not work with torch.autograd.grad",
        kernels=ANY,
        needs=asks.reentrant,
    ),
)

_MESH_ROWS: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"Operator \S+ does not have a sharding strategy registered",
        why="DTensor has no rule for this operator",
        kernels=MESHED,
        needs=asks.distributed,
    ),
    Refusal(
        pattern=r"Cannot (?:un)?flatten unevenly sharded tensor|"
        r"This operation would remove or reshape sharded dimension",
        why="DTensor reshapes a sharded dimension only where each rank can do it alone",
        kernels=MESHED,
        needs=asks.distributed,
    ),
    Refusal(
        pattern=r"got mixed torch\.Tensor and DTensor, need to convert all torch\.Tensor",
        why="the program itself leaves its mask a plain tensor",
        kernels=MESHED,
        needs=asks.leaves_its_mask_plain,
    ),
)

_COMPILE_ROWS: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"compiled with non-empty donated buffers which requires create_graph=False",
        why="AOTAutograd has no double backward",
        kernels=COMPILE,
        needs=lambda program: asks.traces_backward(program) and asks.differentiates_twice(program),
        thread="pytorch/pytorch#91469",
    ),
    Refusal(
        pattern=r"torch\.compile with aot_autograd does not currently support double backward",
        why="AOTAutograd has no double backward",
        kernels=COMPILE,
        needs=lambda program: asks.traces_backward(program) and asks.differentiates_twice(program),
        thread="pytorch/pytorch#91469",
    ),
    Refusal(
        pattern=r"Calling torch\.func\.(vmap|grad|jvp)\(compiled_fn\) function from eager mode is "
        r"not supported",
        why="a functorch transform goes inside the compiled function, not around it",
        kernels=COMPILE,
        needs=asks.transforms,
        thread="pytorch/pytorch#128711",
    ),
    Refusal(
        pattern=r"attempted to apply meta conversion to view functorch tensor",
        why="a functorch transform goes inside the compiled function, not around it",
        kernels=COMPILE,
        needs=asks.transforms,
        thread="pytorch/pytorch#128711",
    ),
    Refusal(
        pattern=r"HOP: Unsafe side effect\s+Higher Order Operator: "
        r"torch\.utils\.checkpoint\.checkpoint",
        why="a compiled checkpoint region has no side effects; making a BlockMask in it is one",
        kernels=COMPILE,
        needs=asks.checkpoints,
        thread="pytorch/torchtitan#1005",
    ),
    Refusal(
        pattern=r"Reconstruction of FakeIdVariable\s+Explanation: A fake id produced by id\(\)",
        why="the id of what is made in the compiled function means nothing outside of it",
        kernels=COMPILE,
        needs=asks.keeps_block_mask_by_identity,
        thread="pytorch/pytorch#177443",
    ),
    Refusal(
        pattern=r"Cannot propagate strict view sharding through a symbolic _StridedShard",
        why="a sharded dimension is merged into another only where sizes are known",
        kernels=COMPILE,
        needs=lambda program: asks.distributed(program) and asks.symbolic_sizes(program),
        thread="pytorch/pytorch#166483",
    ),
    Refusal(
        pattern=r"FailOnRecompileLimitHit|Dynamo recompile limit exceeded",
        why="the program has more static shapes than dynamo's recompile limit",
        kernels=COMPILE,
        needs=asks.more_shapes_than_recompiles,
    ),
    Refusal(
        pattern=r"NoValidChoicesError: .*max_autotune_gemm_backends",
        why="the program's options leave matrix products no backend that this device has",
        kernels=COMPILE,
        needs=asks.gemm_backends_without_aten,
    ),
)

# What only a user's own function can ask for: nested tensors, DTensor, other devices' kernels.
_FUNCTION_ONLY = (
    (r"Returning max scores is not supported", "flex_attention has no max scores here"),
    (r"NYI: query, key, and value must be 4D tensors", "flex_attention takes 4-D tensors"),
    (r"flex_attention does not support NestedTensor inputs", "flex_attention takes dense tensors"),
    (r"Expected query, key, and value to have the same device type", "one device for q, k, v"),
    (r"Expect query and key/value to have the same embedding dimension", "q and k share D"),
    (r"Expect number of query heads to be a multiple of kv heads for GQA", "Hkv divides Hq"),
    (r"Expect query and key/value to have the same batch size, or", "q and k share B"),
    (r"Expect q/k/v and block_mask to be on the same device", "one device for the BlockMask"),
    (r"FlexAttention is only supported on CUDA, CPU, HPU, or MPS", "no flex_attention here"),
    (r"Cannot specify both return_lse and return_aux", "return_lse and return_aux exclude"),
    (r"Captured buffers from mask mod that require grad are not supported", "masks do not learn"),
    (r"Captured buffers that require grad are not yet supported", "torch <= 2.5 learns no tables"),
    (r"BlockMask q_indices is None\. Backward pass requires", "made without compute_q_blocks"),
    (r"UnsupportedAliasMutationException: Mutations detected in score_mod", "score_mod is pure"),
    (r"Backward pass with mixed query, key, and value dtype is not supported", "one dtype"),
    (r"vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow",
     "mods have no control flow on tensors"),
    (r"vmap: It looks like you're calling \.item\(\) on a Tensor", "mods do not call .item()"),
    (r"must only return Tensors, got type <class 'bool'>", "mods return tensors"),
    (r"embedding dimension of the query, key, and value must be at least 16", "D is 16 or more"),
    (r"FLASH backend backward does not support differentiating through logsumexp", "no dLSE"),
    (r"AssertionError: (Query|Key) length must be greater than 0", "lengths are positive"),
    (r"Masks are not yet supported!", "nested SDPA has no masks"),
    (r"Nested tensors for query / key are not supported when", "nested SDPA has no masks"),
    (r"Expected query, key, and value to all be ragged on the same dimension", "one ragged dim"),
    (r"GQA is not supported with the cuDNN backend", "cuDNN varlen has no GQA"),
    (r"cuDNN backend does not support window attention", "cuDNN varlen has no window"),
    (r"seqused_k is an inference-only parameter", "seqused_k has no backward"),
    (r"NotImplementedError: Operator \S+ does not have a sharding strategy registered",
     "DTensor has no rule for this operator"),
    (r"got mixed torch\.Tensor and DTensor, need to convert all torch\.Tensor to DTensor",
     "the function mixes Tensor and DTensor"),
    (r"There was no rule registered for HOP flex_attention and subclass", "no DTensor rule"),
    (r"Load balancing requires `is_causal=True`", "context parallel balances causal masks only"),
    (r"is_causal requires the same query and context sequence lengths", "ring causal: Lq == Lkv"),
    (r"return_debug_mask is not supported yet|attn_bias is not supported yet", "ring attention"),
    (r"CP only supports flash attention and memory efficient attention now", "ring attention"),
    (r"is not divisible by CP mesh world size", "context parallel splits whole blocks"),
    (r"Context Parallel does not support using .* for kv shards rotation", "no such rotation"),
    (r"for now only support q_blk_size == kv_blk_size", "context parallel: square blocks"),
    (r"Unsupported input type <class '[\w.]+BlockMask'>\. Export only supports", "no BlockMask"),
    (r"get unsupported atten_mask shape, the shape is", "the NPU kernel takes four mask shapes"),
)  # fmt: skip

_FLASH_ATTN_ROWS: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"[kv]_cache must have contiguous last dimension",
        why="a cache is updated in place, so it is not made contiguous first",
        kernels=("flash_attn",),
    ),
)

REFUSALS: tuple[Refusal, ...] = (
    *_SDPA_ROWS,
    *FLEX_ROWS,
    *_HANDWRITTEN_ROWS,
    *_FLASH_ATTN_ROWS,
    *_AUTOGRAD_ROWS,
    *_MESH_ROWS,
    *_COMPILE_ROWS,
    *(Refusal(pattern=pattern, why=why, kernels=OWN) for pattern, why in _FUNCTION_ONLY),
)


def for_program(program: Program) -> tuple[Refusal, ...]:
    """The refusals that are by design for `program`, in a fixed order."""
    kind = program.kernel.kind

    def applies(refusal: Refusal) -> bool:
        if "compile" in refusal.kernels:
            return program.compile is not None and refusal.needs(program)
        return kind in refusal.kernels and (kind == "function" or refusal.needs(program))

    return tuple(refusal for refusal in REFUSALS if applies(refusal))
