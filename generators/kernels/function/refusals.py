"""Refusals that a user's own function may meet: those of every kernel of torch's.

Nothing is known of what the function requires, so that none of them has a condition.
"""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.generators.kernels.flex.refusals import FLEX
from attnfuzz.generators.kernels.handwritten.refusals import HANDWRITTEN
from attnfuzz.generators.kernels.refusal import Refusal, always
from attnfuzz.generators.kernels.sdpa.refusals import SDPA
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD, MESH, ONE_DTYPE

OF_ARGUMENTS: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"Explicit attn_mask should not be set when is_causal=True",
        why="is_causal and attn_mask exclude each other",
    ),
    Refusal(
        pattern=r"Number of heads in key and value must divide the number of heads in",
        why="grouped queries need Hq to be a multiple of Hkv",
    ),
    Refusal(
        pattern=r"Expected query, key, and value to all be  at least 2 dimensional",
        why="SDPA takes tensors of two dimensions or more",
    ),
    Refusal(
        pattern=r"dropout probability has to be between 0 and 1",
        why="a dropout probability is between 0 and 1",
    ),
)
"""Of SDPA's arguments, which programs of ours hand over as it takes them."""

FUNCTION_ONLY = (
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
"""What only a user's own function can require: nested tensors, DTensor, other devices' kernels."""

REFUSALS: tuple[Refusal, ...] = (
    *(
        replace(refusal, needs=always)
        for refusal in (ONE_DTYPE, *SDPA, *OF_ARGUMENTS, *FLEX, *HANDWRITTEN, *AUTOGRAD, *MESH)
    ),
    *(Refusal(pattern=pattern, why=why) for pattern, why in FUNCTION_ONLY),
)
