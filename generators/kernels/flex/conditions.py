"""What a program of flex_attention may require that torch declines."""

from __future__ import annotations

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec, Flex
from attnfuzz.generators.model.expressions import has_learnable, uses_score
from attnfuzz.generators.model.program import Program


def inductor_returns_lse(program: Program) -> bool:
    """Whether flex_attention, compiled with Inductor, returns the log-sum-exp too."""
    return (
        conditions.inductor(program)
        and isinstance(program.kernel, Flex)
        and program.kernel.return_lse
    )


def score_mod_without_score(program: Program) -> bool:
    """Whether gradients are wanted through a score_mod that leaves out the score it is given."""
    score_mod = program.score_mod
    if score_mod is None or not conditions.differentiates(program):
        return False
    return not uses_score(score_mod)


def _block_mask(program: Program) -> BlockMaskSpec | None:
    """How the program's BlockMask is made; None where it has none, or another kernel."""
    return program.kernel.block_mask if isinstance(program.kernel, Flex) else None


def block_mask_of_other_length(program: Program) -> bool:
    """Whether the BlockMask is made for other lengths than q's and k's, and given as it is."""
    made = _block_mask(program)
    return made is not None and any(made.other[2:])


def indexes_block_mask(program: Program) -> bool:
    """Whether the BlockMask is made for more batches than q has, and then indexed."""
    made = _block_mask(program)
    return made is not None and made.spare_batch > 0


def compiled_block_mask_inside(program: Program) -> bool:
    """Whether a BlockMask with `_compile=True` is made in the attention function."""
    made = _block_mask(program)
    return made is not None and made.compiled and made.made != "outside"


def kernel_options(program: Program) -> bool:
    """Whether flex_attention is given any kernel_options."""
    return isinstance(program.kernel, Flex) and bool(program.kernel.kernel_options)


_TILES = ("BLOCK_", "fwd_BLOCK_", "bwd_BLOCK_", "num_", "fwd_num_", "bwd_num_", "SPLIT_KV")


def own_tiles(program: Program) -> bool:
    """The program says how large tiles are, how many are loaded ahead, by how many warps, or which
    kernel is to have them."""
    kernel = program.kernel
    names = dict(kernel.kernel_options or {}) if isinstance(kernel, Flex) else {}
    return any(name.startswith(_TILES) or name == "BACKEND" for name in names)


def _blocks(program: Program) -> tuple[int, int] | None:
    made = _block_mask(program)
    return None if made is None else made.block_size


def own_tiles_or_blocks(program: Program) -> bool:
    """The program says how large tiles are, or has a BlockMask that not every tile divides."""
    blocks = _blocks(program)
    return own_tiles(program) or (blocks is not None and any(size % 128 for size in blocks))


_KEYS = (16, 64)
"""BLOCK_N of the decoding kernel, by card and dtype, where there is one to choose from
(`get_flex_decode_configs`); no more than a block has."""


def no_tile_divides_blocks(program: Program) -> bool:
    """Every tile that the lowering tries may be dropped since it does not divide the BlockMask's
    blocks. The decoding kernel, for fewer than 128 queries of a call, takes BLOCK_M of
    `max(next_power_of_2(Lq * Hq / Hkv), 16)` rows, and BLOCK_N of at least 16 keys, at most a
    block's (`create_flex_decoding_kernel`: "if SPARSE_Q_BLOCK_SIZE % kernel_options["BLOCK_M"] !=
    0: continue", and the same of `conf.block_n`). The forward kernel drops tiles where it has
    several to choose from, so with `max_autotune`; one alone raises a ValueError, which has words
    of its own. Blocks that are multiples of 128 are divided by all of them but for a decoding tile
    of grouped queries, which is no refusal but pytorch/pytorch#185349."""
    blocks = _blocks(program)
    if own_tiles(program):
        return True
    if blocks is None or not any(size % 128 for size in blocks):
        return False
    shape = program.shape
    group = shape.q_heads // shape.kv_heads
    for q_len, _ in conditions.lengths(program):
        rows = max(1 << max(q_len * group - 1, 0).bit_length(), 16)
        if q_len < 128 and (blocks[0] % rows or any(blocks[1] % min(n, blocks[1]) for n in _KEYS)):
            return True
    return _tries_several(program)


def _tries_several(program: Program) -> bool:
    """Whether Inductor has several tiles to choose from."""
    compiled = program.compile
    if compiled is None:
        return False
    return "max-autotune" in (compiled.mode or "") or bool(compiled.options.get("max_autotune"))


def blocks_below_16(program: Program) -> bool:
    """Whether the BlockMask's blocks have an edge below 16."""
    blocks = _blocks(program)
    return blocks is not None and min(blocks) < 16


def no_full_blocks(program: Program) -> bool:
    """The BlockMask does not tell full blocks from others."""
    made = _block_mask(program)
    return made is not None and not made.full_blocks


def orders_writes(program: Program) -> bool:
    """The BlockMask is created with an order of writes to dq."""
    made = _block_mask(program)
    return made is not None and made.dq_write_order != "none"


def odd_blocks(program: Program) -> bool:
    """The BlockMask's blocks are no powers of two."""
    blocks = _blocks(program)
    return blocks is not None and any(size & (size - 1) for size in blocks)


def inductor_head_dim_below_16(program: Program) -> bool:
    """Whether it is compiled with Inductor, and D or v's head dimension is below 16."""
    shape = program.shape
    return (
        conditions.inductor(program)
        and min(shape.head_dim, shape.v_head_dim or shape.head_dim) < 16
    )


def inductor_without_vectors(program: Program) -> bool:
    """Whether it is compiled with Inductor, which is told that the CPU has no vectors."""
    return (
        program.compile is not None
        and conditions.inductor(program)
        and program.compile.options.get("cpp.simdlen") == 0
    )


def inductor_float64(program: Program) -> bool:
    """Whether it is compiled with Inductor, and q, k or v is float64."""
    return conditions.inductor(program) and "float64" in {
        program.q.dtype,
        program.k.dtype,
        program.v.dtype,
    }


def inductor_dtypes_differ(program: Program) -> bool:
    """Whether it is compiled with Inductor, and dtypes may differ; see `dtypes_may_differ`."""
    return conditions.inductor(program) and conditions.dtypes_may_differ(program)


def learnable_tables(program: Program) -> bool:
    """Whether the score_mod captures a table that requires a gradient."""
    return has_learnable(program.score_mod)
