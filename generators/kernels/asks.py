"""What a program asks for that torch may decline: the conditions in `refusals`."""

from __future__ import annotations

from attnfuzz.generators.kernels.specs import Flex, Handwritten, NpuFusionAttention, Sdpa
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import walk

RECOMPILE_LIMIT = 8  # torch._dynamo.config.recompile_limit


def lengths(program: Program) -> list[tuple[int, int]]:
    shape = program.shape
    further = [(call.q_len, call.kv_len) for call in program.calls]
    return [(shape.q_len, shape.kv_len), *further]


def dtypes_may_differ(program: Program) -> bool:
    """q, k and v reach the kernel in different dtypes, or in another than the mask's."""
    dtypes = {program.q.dtype, program.k.dtype, program.v.dtype}
    around = program.surround
    in_module = around.projections or around.rope or around.qk_norm
    return len(dtypes) > 1 or (in_module and program.autocast is not None)


def products_dtypes_may_differ(program: Program) -> bool:
    """As `dtypes_may_differ`, of matrix products, which autocast gives operands of one dtype."""
    return program.autocast is None and dtypes_may_differ(program)


def mask_dtype_may_differ(program: Program) -> bool:
    kernel = program.kernel
    additive = isinstance(kernel, Sdpa) and kernel.mask_form == "float"
    return additive and (dtypes_may_differ(program) or program.autocast is not None)


def forces_fused_backend(program: Program) -> bool:
    return isinstance(program.kernel, Sdpa) and program.kernel.backend in ("flash", "efficient")


def gqa_not_enabled(program: Program) -> bool:
    enabled = isinstance(program.kernel, Sdpa | Flex) and program.kernel.enable_gqa
    return program.shape.q_heads != program.shape.kv_heads and not enabled


def differentiates(program: Program) -> bool:
    return program.training is not None or program.transform == "grad"


def differentiates_twice(program: Program) -> bool:
    return program.training is not None and (program.training.double or program.transform != "none")


def forward_mode(program: Program) -> bool:
    return program.transform == "jvp"


def checkpoints(program: Program) -> bool:
    return program.surround.checkpoint != "none"


def reentrant(program: Program) -> bool:
    return program.training is not None and program.surround.checkpoint == "reentrant"


def inductor(program: Program) -> bool:
    return program.compile is not None and program.compile.backend == "inductor"


def traces_backward(program: Program) -> bool:
    return program.compile is not None and program.compile.backend != "eager"


def inductor_returns_lse(program: Program) -> bool:
    return inductor(program) and isinstance(program.kernel, Flex) and program.kernel.return_lse


def inductor_float64(program: Program) -> bool:
    return inductor(program) and "float64" in {program.q.dtype, program.k.dtype, program.v.dtype}


def inductor_dtypes_differ(program: Program) -> bool:
    return inductor(program) and dtypes_may_differ(program)


def block_mask_of_other_length(program: Program) -> bool:
    kernel = program.kernel
    if not isinstance(kernel, Flex) or kernel.block_mask is None:
        return False
    return kernel.block_mask.built_for_extra != (0, 0)


def indexes_block_mask(program: Program) -> bool:
    kernel = program.kernel
    return (
        isinstance(kernel, Flex)
        and kernel.block_mask is not None
        and kernel.block_mask.spare_batch > 0
    )


def keeps_block_mask_by_identity(program: Program) -> bool:
    """Compiled, it keeps a BlockMask by the `id` of the mask_mod that it was made of."""
    spec = program.kernel.block_mask if isinstance(program.kernel, Flex) else None
    return program.compile is not None and spec is not None and spec.made == "cached"


def compiled_block_mask_inside(program: Program) -> bool:
    kernel = program.kernel
    if not isinstance(kernel, Flex) or kernel.block_mask is None:
        return False
    return kernel.block_mask.compiled and kernel.block_mask.made != "outside"


def empty_sequences(program: Program) -> bool:
    return any(0 in pair for pair in lengths(program))


def kernel_options(program: Program) -> bool:
    return isinstance(program.kernel, Flex) and bool(program.kernel.kernel_options)


_TILES = ("BLOCK_", "fwd_BLOCK_", "bwd_BLOCK_", "num_", "fwd_num_", "bwd_num_", "SPLIT_KV")


def own_tiles(program: Program) -> bool:
    """The program says how large tiles are, how many are loaded ahead, by how many warps, or which
    kernel is to have them."""
    kernel = program.kernel
    names = dict(kernel.kernel_options or {}) if isinstance(kernel, Flex) else {}
    return any(name.startswith(_TILES) or name == "BACKEND" for name in names)


def _blocks(program: Program) -> tuple[int, int] | None:
    kernel = program.kernel
    if not isinstance(kernel, Flex) or kernel.block_mask is None:
        return None
    return kernel.block_mask.block_size


def own_tiles_or_blocks(program: Program) -> bool:
    """The program says how large tiles are, or has a BlockMask that not every tile divides."""
    blocks = _blocks(program)
    return own_tiles(program) or (blocks is not None and any(size % 128 for size in blocks))


def blocks_below_16(program: Program) -> bool:
    blocks = _blocks(program)
    return blocks is not None and min(blocks) < 16


def odd_blocks(program: Program) -> bool:
    """The BlockMask's blocks are no powers of two."""
    blocks = _blocks(program)
    return blocks is not None and any(size & (size - 1) for size in blocks)


def inductor_head_dim_below_16(program: Program) -> bool:
    shape = program.shape
    return inductor(program) and min(shape.head_dim, shape.v_head_dim or shape.head_dim) < 16


def distributed(program: Program) -> bool:
    return program.mesh is not None


def symbolic_sizes(program: Program) -> bool:
    """Compiled, it may have sizes that are symbols: by `dynamic`, or in a second call."""
    compiled = program.compile
    return compiled is not None and (compiled.dynamic is True or bool(program.calls))


def leaves_its_mask_plain(program: Program) -> bool:
    kernel = program.kernel
    own = isinstance(kernel, NpuFusionAttention) and kernel.sparse_mode > 1
    masked = own or program.mask is not None
    return program.mesh is not None and program.mesh.plain_mask and masked


def learnable_tables(program: Program) -> bool:
    nodes = walk(program.score_mod) if program.score_mod is not None else ()
    return any(getattr(node, "requires_grad", False) for node in nodes)


def exp_sum_over_nothing(program: Program) -> bool:
    kernel = program.kernel
    by_maximum = isinstance(kernel, Handwritten) and kernel.softmax == "exp_sum"
    return by_maximum and any(kv_len == 0 for _, kv_len in lengths(program))


def more_shapes_than_recompiles(program: Program) -> bool:
    """Static shapes only, and more of them than dynamo compiles one function for."""
    if program.compile is None or program.compile.dynamic is not False:
        return False
    shape = program.shape
    shapes = {(shape.batch, shape.q_len, shape.kv_len)}
    shapes |= {(call.batch, call.q_len, call.kv_len) for call in program.calls}
    return len(shapes) > RECOMPILE_LIMIT


def transforms(program: Program) -> bool:
    return program.transform != "none"


def gemm_backends_without_aten(program: Program) -> bool:
    if program.compile is None:
        return False
    backends = str(program.compile.options.get("max_autotune_gemm_backends", "ATEN"))
    return "ATEN" not in backends.upper()
