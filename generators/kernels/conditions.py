"""What a program may require that torch declines: conditions of refusals of several kernels."""

from __future__ import annotations

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.options import NO_CODE
from attnfuzz.generators.model.program import Program

RECOMPILE_LIMIT = 8  # torch._dynamo.config.recompile_limit


def lengths(program: Program) -> list[tuple[int, int]]:
    """Lq and Lkv of every call, the first call's in front."""
    shape = program.shape
    further = [(call.q_len, call.kv_len) for call in program.calls]
    return [(shape.q_len, shape.kv_len), *further]


def dtypes_may_differ(program: Program) -> bool:
    """q, k and v reach the kernel in different dtypes, or in another than the mask's."""
    dtypes = {program.q.dtype, program.k.dtype, program.v.dtype}
    around = program.surround
    in_module = around.projections or around.rope or around.qk_norm
    return len(dtypes) > 1 or (in_module and program.autocast is not None)


def strided_head_dim(program: Program) -> bool:
    """Whether q, k or v is stored so that its last dimension has another stride than 1."""
    layouts = (program.q.layout, program.k.layout, program.v.layout)
    return any(each.order[-1] != 3 or each.step[3] != 1 or 3 in each.expand for each in layouts)


def sets_options(program: Program) -> bool:
    """Whether it is compiled with options of Inductor's."""
    return program.compile is not None and bool(program.compile.options)


def differentiates(program: Program) -> bool:
    """Whether gradients are computed, by autograd or by the transform `grad`."""
    return program.training is not None or program.transform == "grad"


def differentiates_twice(program: Program) -> bool:
    """Whether gradients are differentiated again, by a second backward or by a transform."""
    return program.training is not None and (program.training.double or program.transform != "none")


def forward_mode(program: Program) -> bool:
    """Whether derivatives are computed in forward mode, by the transform `jvp`."""
    return program.transform == "jvp"


def checkpoints(program: Program) -> bool:
    """Whether the call is checkpointed (torch.utils.checkpoint)."""
    return program.surround.checkpoint != "none"


def is_region(program: Program) -> bool:
    """Whether the attention function is a nested_compile_region."""
    return program.surround.region


def reentrant(program: Program) -> bool:
    """Whether it trains through a reentrant checkpoint."""
    return program.training is not None and program.surround.checkpoint == "reentrant"


def inductor(program: Program) -> bool:
    """Whether it is compiled with Inductor."""
    return program.compile is not None and program.compile.backend == "inductor"


def falls_back(program: Program) -> bool:
    """Whether what Inductor decomposes it to is run by torch's own kernels."""
    compiled = program.compile
    if compiled is None:
        return False
    return compiled.mode == "lite" or bool(compiled.options.get(NO_CODE))


def traces_backward(program: Program) -> bool:
    """Whether its backward pass would be traced: it is compiled, and not with `eager`."""
    return program.compile is not None and program.compile.backend != "eager"


def empty_sequences(program: Program) -> bool:
    """Whether Lq or Lkv is 0 in some call."""
    return any(0 in pair for pair in lengths(program))


def empty_batch(program: Program) -> bool:
    """Whether the batch is 0 in some call."""
    return 0 in (program.shape.batch, *(call.batch for call in program.calls))


def distributed(program: Program) -> bool:
    """Whether q, k and v are DTensors over a mesh."""
    return program.mesh is not None


def symbolic_sizes(program: Program) -> bool:
    """Compiled, it may have sizes that are symbols: by `dynamic`, or in a second call."""
    compiled = program.compile
    return compiled is not None and (compiled.dynamic is True or bool(program.calls))


def more_shapes_than_recompiles(program: Program) -> bool:
    """Static shapes only, and more of them than dynamo compiles one function for."""
    if program.compile is None or program.compile.dynamic is not False:
        return False
    shape = program.shape
    shapes = {(shape.batch, shape.q_len, shape.kv_len)}
    shapes |= {(call.batch, call.q_len, call.kv_len) for call in program.calls}
    return len(shapes) > RECOMPILE_LIMIT


def transforms(program: Program) -> bool:
    """Whether a functorch transform is around the call."""
    return program.transform != "none"


def grad_of_autocast(program: Program) -> bool:
    """Whether the transform `grad` is given a function that computes under autocast."""
    return program.transform == "grad" and program.autocast is not None


def gemm_backends_without_aten(program: Program) -> bool:
    """Whether the options of torch.compile rule out ATen for matrix products."""
    if program.compile is None:
        return False
    backends = str(program.compile.options.get("max_autotune_gemm_backends", "ATEN"))
    return "ATEN" not in backends.upper()


def gqa_not_enabled(program: Program) -> bool:
    """Whether Hq differs from Hkv while the kernel is not given `enable_gqa`."""
    grouped = program.shape.q_heads != program.shape.kv_heads
    return grouped and not plugin_of(program).gqa_enabled(program.kernel)


def leaves_its_mask_plain(program: Program) -> bool:
    """Whether q, k and v are DTensors while the mask is a plain tensor."""
    masked = program.mask is not None or plugin_of(program).has_own_mask(program.kernel)
    return program.mesh is not None and program.mesh.plain_mask and masked


def keeps_made_mask_by_identity(program: Program) -> bool:
    """Compiled, it keeps a BlockMask by the `id` of the mask_mod that it was made of."""
    return program.compile is not None and plugin_of(program).keys_by_identity(program.kernel)


def traces_second_derivative(program: Program) -> bool:
    """Whether it is compiled such that a second derivative would be traced."""
    return traces_backward(program) and differentiates_twice(program)


def distributed_symbolic_sizes(program: Program) -> bool:
    """Whether it has DTensors and, compiled, sizes that may be symbols."""
    return distributed(program) and symbolic_sizes(program)


def marks_dynamic(program: Program) -> bool:
    """Whether a size of its inputs is marked as dynamic."""
    return "dynamic" in _marks(program)


def marks_unbacked(program: Program) -> bool:
    """Whether a size of its inputs is marked as unbacked."""
    return "unbacked" in _marks(program)


def _marks(program: Program) -> tuple[str, ...]:
    if program.compile is None:
        return ()
    marks = program.compile.marks
    return marks.batch, marks.q_len, marks.kv_len
