"""Refusals that several kernels share: of dtypes, autograd, DTensor and torch.compile."""

from __future__ import annotations

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.refusal import Refusal

ONE_DTYPE = Refusal(
    pattern=r"Expected query, key, and value to have the same dtype, but got query\.dtype: ",
    why="SDPA and flex_attention take q, k and v of one dtype",
    needs=conditions.dtypes_may_differ,
)

AUTOGRAD: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"When use_reentrant=True, torch\.utils\.checkpoint is incompatible with \.grad",
        why="reentrant checkpointing does not work with torch.autograd.grad",
        needs=conditions.reentrant,
    ),
    Refusal(
        pattern=r"expected m1 and m2 to have the same dtype|expected scalar type \S+ but found \S+",
        why="autocast in a function that torch.func.grad is given casts its forward pass alone",
        needs=conditions.grad_of_autocast,
        thread="pytorch/functorch#305",
    ),
)

MESH: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"Operator \S+ does not have a sharding strategy registered",
        why="DTensor has no rule for this operator",
        needs=conditions.distributed,
    ),
    Refusal(
        pattern=r"Cannot (?:un)?flatten unevenly sharded tensor|"
        r"This operation would remove or reshape sharded dimension",
        why="DTensor reshapes a sharded dimension only where each rank can do it alone",
        needs=conditions.distributed,
    ),
    Refusal(
        pattern=r"got mixed torch\.Tensor and DTensor, need to convert all torch\.Tensor",
        why="the program itself leaves its mask a plain tensor",
        needs=conditions.leaves_its_mask_plain,
    ),
)

COMPILE: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"RuntimeError: Unexpected optimization option \S+, known options are ",
        why="this release of Inductor does not have the option",
        needs=conditions.sets_options,
    ),
    Refusal(
        pattern=r"\"arange_cpu\" not implemented for 'UInt16'",
        why="tril and triu of more than 255 positions are decomposed to 16-bit indices, for which "
        "eager torch has no arange on a CPU",
        needs=conditions.falls_back,
    ),
    Refusal(
        pattern=r"compiled with non-empty donated buffers which requires create_graph=False",
        why="AOTAutograd has no double backward",
        needs=conditions.traces_second_derivative,
        thread="pytorch/pytorch#91469",
    ),
    Refusal(
        pattern=r"torch\.compile with aot_autograd does not currently support double backward",
        why="AOTAutograd has no double backward",
        needs=conditions.traces_second_derivative,
        thread="pytorch/pytorch#91469",
    ),
    Refusal(
        pattern=r"Calling torch\.func\.(vmap|grad|jvp)\(compiled_fn\) function from eager mode is "
        r"not supported",
        why="a functorch transform goes inside the compiled function, not around it",
        needs=conditions.transforms,
        thread="pytorch/pytorch#128711",
    ),
    Refusal(
        pattern=r"attempted to apply meta conversion to view functorch tensor",
        why="a functorch transform goes inside the compiled function, not around it",
        needs=conditions.transforms,
        thread="pytorch/pytorch#128711",
    ),
    Refusal(
        pattern=r"HOP: Unsafe side effect\s+(?:Higher Order Operator: "
        r"torch\.utils\.checkpoint\.checkpoint|Explanation: Mutating a variable from outside)",
        why="a compiled checkpoint region has no side effects; making a BlockMask in it is one",
        needs=conditions.checkpoints,
        thread="pytorch/torchtitan#1005",
    ),
    Refusal(
        # `.mT` of an argument is lifted as `getattr_1`, and aliases it: that is no alias of the
        # user's (pytorch#191785).
        pattern=r"Encountered aliasing during higher order op tracing(?![\s\S]*\bgetattr_\d)",
        why="what a region is given, and what it returns, may not share memory",
        needs=conditions.is_region,
        thread="pytorch/pytorch#148953",
    ),
    Refusal(
        pattern=r"An intermediate tensor '\w+' created inside a higher-order op subgraph aliases "
        r"an input or output",
        why="what a region leaves behind elsewhere, a cached BlockMask say, may not share memory",
        needs=conditions.is_region,
    ),
    Refusal(
        pattern=r"Reconstruction of FakeIdVariable\s+Explanation: A fake id produced by id\(\)|"
        r"Dynamo doesn't know how to trace id\(\) call with args",
        why="the id of what is made in the compiled function means nothing outside of it",
        needs=conditions.keeps_made_mask_by_identity,
        thread="pytorch/pytorch#177443",
    ),
    Refusal(
        pattern=r"Cannot propagate strict view sharding through a symbolic _StridedShard",
        why="a sharded dimension is merged into another only where sizes are known",
        needs=conditions.distributed_symbolic_sizes,
        thread="pytorch/pytorch#166483",
    ),
    Refusal(
        pattern=r"FailOnRecompileLimitHit|Dynamo recompile limit exceeded",
        why="the program has more static shapes than dynamo's recompile limit",
        needs=conditions.more_shapes_than_recompiles,
    ),
    Refusal(
        pattern=r"Constraints violated \(.*\)! [\s\S]*You marked .* as dynamic but your code "
        r"specialized it to be a constant",
        why="a size that is marked as dynamic is compared with one that is not, or is a constant",
        needs=conditions.marks_dynamic,
    ),
    Refusal(
        pattern=r"(?:GuardOnDataDependentSymNode|UserError): (?:Consider annotating your code "
        r"using torch\._check\*\(\)\. )?Could not (?:guard on data-dependent expression|"
        r"extract specialized integer from data-dependent expression)",
        why="an unbacked size is data-dependent: what asks for its value raises",
        needs=conditions.marks_unbacked,
    ),
    Refusal(
        pattern=r"NoValidChoicesError: .*max_autotune_gemm_backends",
        why="the program's options leave matrix products no backend that this device has",
        needs=conditions.gemm_backends_without_aten,
    ),
)
"""Of a program that is compiled, whatever its kernel. torch documents of `mark_dynamic` that
"we will raise an error" for a size that is "fully constrained", and of `mark_unbacked` that
"attempting to get the real value of this dimension will raise an exception"."""
