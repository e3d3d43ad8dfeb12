"""Options that a program may set: those that change how code is generated, and nothing else.

Torch takes options for more than that: a compiler to start (`cpp.cxx`) and flags for it, folders to
import from, files to write, text that it puts into the kernels it generates (torch 2.13: a value of
`kernel_options` stands unquoted in a Triton template). A program is data, wherever it comes from,
and must not reach any of it. So options are listed, their values are truth values and integers, and
text is one of the words that torch looks up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from attnfuzz.generators.reading.safe_yaml import short

MAX_OPTIONS = 20
NO_CODE = "fallback_by_default"
"""Inductor's option by which every operator that it has decomposed and fused to is run by torch's
own kernel: its graph passes are at work, and no C++ is compiled."""

INDUCTOR = frozenset({
    "aggressive_fusion", "align_random_eager", "alignment_asserts", "allow_buffer_reuse",
    "assert_indirect_indexing", "assume_32bit_indexing", "assume_aligned_inputs", "b2b_gemm_pass",
    "batch_fusion", "batch_invariant", "benchmark_epilogue_fusion", "benchmark_fusion",
    "cache_sdpa_constraint", "combo_kernel_foreach_dynamic_shapes", "combo_kernels",
    "combo_kernels_autotune", "comprehensive_padding", "constant_and_index_propagation",
    "conv_1x1_as_mm", "coordinate_descent_tuning", "cpp_wrapper", "dce", "decompose_mem_bound_mm",
    "delay_realize_cheap_outputs", "deterministic", "disable_cpp_codegen", "disable_padding_cpu",
    "dynamic_scale_rblock", "emulate_precision_casts", "emulate_precision_casts_on_saved_tensors",
    "epilogue_fusion", "epilogue_fusion_first", "expand_dimension_for_pointwise_nodes",
    "fallback_by_default", "fallback_random", "force_layout_optimization", "force_pointwise_cat",
    "force_shape_pad", "freezing", "graph_partition", "group_fusion", "implicit_fallbacks",
    "inplace_buffers", "inplace_padding", "joint_graph_constant_folding",
    "keep_addmm_fused_for_half_dtypes", "keep_output_stride", "layout_optimization",
    "loop_index_inversion_in_fusion", "loop_ordering_after_fusion", "loop_reindexing_after_fusion",
    "max_autotune", "max_autotune_allow_flexible_layouts", "max_autotune_conv_backends",
    "max_autotune_flex_search_space", "max_autotune_gemm", "max_autotune_gemm_backends",
    "max_autotune_gemm_search_space", "max_autotune_pointwise",
    "max_autotune_prune_choices_based_on_shared_mem", "max_fusion_size", "max_pointwise_cat_inputs",
    "memory_planning", "memory_pool", "min_num_split", "nan_asserts", "online_softmax",
    "pad_channels_last", "pad_dynamic_shapes", "pad_outputs", "padding_alignment_bytes",
    "padding_stride_threshold", "pattern_matcher", "permute_fusion", "pick_loop_orders",
    "prologue_fusion", "realize_cpu_acc_reads_threshold", "realize_cpu_opcount_threshold",
    "realize_opcount_threshold", "realize_reads_threshold", "reorder_for_locality",
    "reorder_for_peak_memory", "runtime_triton_nan_asserts", "scalar_asserts", "shape_padding",
    "size_asserts", "split_cat_fx_passes", "split_reductions", "static_weight_shapes",
    "unroll_reductions_threshold", "use_fast_math", "use_joint_graph_passes", "use_mixed_mm",
    "use_post_grad_passes", "use_pre_grad_passes",
    "cpp.dynamic_threads", "cpp.enable_concat_linear", "cpp.enable_grouped_gemm_template",
    "cpp.enable_loop_tail_vec", "cpp.enable_tiling_heuristics", "cpp.enable_unsafe_math_opt_flag",
    "cpp.fallback_scatter_reduce_sum", "cpp.force_inline_kernel", "cpp.gemm_max_k_slices",
    "cpp.max_horizontal_fusion_size", "cpp.min_chunk_size", "cpp.no_redundant_loops",
    "cpp.simdlen", "cpp.use_constexpr_for_int_array", "cpp.use_decompose_tanh",
    "cpp.use_small_dequant_buffer", "cpp.use_two_step_variance_threshold", "cpp.weight_prepack",
    "triton.autotune_pointwise", "triton.coalesce_tiling_analysis",
    "triton.codegen_upcast_to_fp32", "triton.cooperative_reductions",
    "triton.cudagraph_skip_dynamic_graphs", "triton.cudagraph_support_input_mutation",
    "triton.cudagraph_trees", "triton.cudagraphs", "triton.decompose_k_threshold",
    "triton.dense_indexing", "triton.divisible_by_16", "triton.enable_persistent_tma_matmul",
    "triton.force_cooperative_reductions", "triton.max_tiles", "triton.mix_order_reduction",
    "triton.multi_kernel", "triton.native_matmul", "triton.nested_reduction",
    "triton.persistent_reductions", "triton.prefer_nd_tiling", "triton.skip_l1_cache",
    "triton.spill_threshold", "triton.tile_reductions", "triton.tiling_prevents_pointwise_fusion",
    "triton.tiling_prevents_reduction_fusion", "triton.use_block_ptr",
    "triton.use_tensor_descriptor",
})  # fmt: skip
"""Options of Inductor that change how code is generated (torch 2.11 to 2.15)."""

INDUCTOR_WORDS = frozenset({
    "max_autotune_conv_backends", "max_autotune_flex_search_space", "max_autotune_gemm_backends",
    "max_autotune_gemm_search_space", "memory_pool",
})  # fmt: skip
"""Those of them whose text is looked up among words."""

_OF_KERNELS = (
    "BACKEND", "BLOCKS_ARE_CONTIGUOUS", "BLOCK_K", "BLOCK_M", "BLOCK_M1", "BLOCK_M2", "BLOCK_N",
    "BLOCK_N1", "BLOCK_N2", "FORCE_USE_FLEX_ATTENTION", "OUTPUT_LOGSUMEXP", "OUTPUT_MAX",
    "PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "SPLIT_KV", "USE_TMA", "WRITE_DQ", "kpack",
    "matrix_instr_nonkdim", "num_consumer_groups", "num_buffers_warp_spec", "num_stages",
    "num_warps", "waves_per_eu",
)  # fmt: skip
KERNEL = frozenset(f"{of}{name}" for of in ("", "fwd_", "bwd_") for name in _OF_KERNELS)
"""flex_attention's `kernel_options`, for the forward or backward alone too."""

KERNEL_WORDS = frozenset({"BACKEND"})

Value = (
    bool | Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | Annotated[str, Field(max_length=100)]
)
Options = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=100)], Value], Field(max_length=MAX_OPTIONS)
]
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(,[A-Za-z_][A-Za-z0-9_]*)*")


def _check(
    whose: str, listed: Set[str], words: Set[str]
) -> Callable[[dict[str, Value]], dict[str, Value]]:
    def check(options: dict[str, Value]) -> dict[str, Value]:
        for name, value in options.items():
            if name not in listed:
                raise _refusal(f"{whose} that change how code is generated", name)
            if isinstance(value, str) and (name not in words or not _WORDS.fullmatch(value)):
                raise _refusal("words" if name in words else "true, false or an integer", name)
        return options

    return check


def _refusal(what: str, name: str) -> PydanticCustomError:
    told = {"what": what, "name": short(name)}
    return PydanticCustomError("option", "expected {what} at {name}", told)


InductorOptions = Annotated[
    Options, AfterValidator(_check("options of Inductor", INDUCTOR, INDUCTOR_WORDS))
]
KernelOptions = Annotated[
    Options, AfterValidator(_check("options of flex_attention", KERNEL, KERNEL_WORDS))
]
