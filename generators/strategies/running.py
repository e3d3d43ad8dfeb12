"""How a program is run: compiled, called, trained, transformed, surrounded."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attnfuzz.generators.model.options import NO_CODE
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Mesh,
    Placement,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.shapes import Shapes
from attnfuzz.generators.strategies.swarm import PROFILES, Swarm

MODES = (
    (2, "default"), (3, "reduce-overhead"), (1, "max-autotune-no-cudagraphs"), (1, "max-autotune"),
    (1, "lite"),
)  # fmt: skip
LITE: dict[str, bool | int | str] = {NO_CODE: True}
"""Without code: a program costs a fifth or less."""
# Without keep_output_stride and cpp.use_decompose_tanh, which ask for other strides and numbers.
OPTIONS: tuple[dict[str, bool | int | str], ...] = (
    {"epilogue_fusion": False}, {"shape_padding": True}, {"pattern_matcher": False},
    {"memory_planning": True}, {"inplace_buffers": False}, {"allow_buffer_reuse": False},
    {"comprehensive_padding": False}, {"layout_optimization": False}, {"permute_fusion": True},
    {"joint_graph_constant_folding": False}, {"split_reductions": False}, {"freezing": True},
    {"reorder_for_peak_memory": False}, {"emulate_precision_casts": True}, {"cpp_wrapper": True},
    {"loop_ordering_after_fusion": False}, {"max_fusion_size": 2}, {"realize_reads_threshold": 1},
    {"force_shape_pad": True}, {"graph_partition": False}, {"nan_asserts": False},
    {"cpp.no_redundant_loops": False}, {"cpp.min_chunk_size": 1},
    {"cpp.max_horizontal_fusion_size": 1},
    {"cpp.enable_loop_tail_vec": False}, {"cpp.enable_tiling_heuristics": False},
    {"size_asserts": True, "aggressive_fusion": True}, {"b2b_gemm_pass": True},
    {"max_autotune": True, "max_autotune_gemm_backends": "ATEN,CPP"}, {"combo_kernels": True},
    {"decompose_mem_bound_mm": True}, {"cpp.simdlen": 0}, {"cpp.simdlen": 256},
    {"cpp.weight_prepack": False}, {"cpp.fallback_scatter_reduce_sum": False},
    {"cpp.use_constexpr_for_int_array": False}, {"cpp.dynamic_threads": True},
    {"cpp.use_two_step_variance_threshold": 1}, {"max_autotune": True, "cpp.gemm_max_k_slices": 0},
    {"freezing": True, "cpp.enable_concat_linear": True}, {"disable_cpp_codegen": True},
    {"constant_and_index_propagation": False}, {"force_pointwise_cat": True},
    {"use_pre_grad_passes": False}, {"use_joint_graph_passes": False},
    {"use_post_grad_passes": False}, {"pick_loop_orders": False}, {"reorder_for_locality": False},
    {"unroll_reductions_threshold": 1}, {"unroll_reductions_threshold": 64},
    {"realize_opcount_threshold": 1}, {"realize_cpu_opcount_threshold": 1},
    {"max_pointwise_cat_inputs": 1}, {"expand_dimension_for_pointwise_nodes": True},
    {"loop_index_inversion_in_fusion": False}, {"loop_reindexing_after_fusion": True},
    {"batch_invariant": True}, {"deterministic": True}, {"assert_indirect_indexing": False},
    {"scalar_asserts": False}, {"inplace_padding": False}, {"split_cat_fx_passes": False},
    {"delay_realize_cheap_outputs": True}, {"online_softmax": False},
    {"keep_addmm_fused_for_half_dtypes": True},
)  # fmt: skip
WRT = (
    ("q",), ("k",), ("v",), ("q", "k"), ("k", "v"), ("q", "v"),
)  # fmt: skip
MAX_PROJECTED = 512
"""Widest model dimension Hq * D that is projected: weights are its square."""


def is_lite(compiled: Compile | None) -> bool:
    """Whether Inductor generates no code for it, as it was asked."""
    return compiled is not None and compiled.options == LITE


class Running:
    """Ways to run with the features of a swarm."""

    def __init__(self, swarm: Swarm, shapes: Shapes) -> None:
        self.has = has = swarm.has
        self.shapes = shapes
        dynamic: Any = ((4, True), (2, False)) if has("compile.dynamic") else ()
        self.dynamic = weighted((10, None), *dynamic)
        tuning: Any = ((1, "mode"),) if has("compile.mode") else ()
        tuning += ((2, "options"),) if has("compile.options") else ()
        lite = 0 if swarm.place.gpu else PROFILES[swarm.profile].lite  # what cards are for is code
        tuning += ((lite, "lite"),) if lite else ()
        self.tuning = weighted((9, "plain"), *tuning)
        self.mode = weighted(*MODES)
        self.options = st.sampled_from(
            [one for one in OPTIONS if swarm.place.links or "cpp_wrapper" not in one]
        )
        self.breaks = one_in(15) if has("compile.breaks") else st.just(False)
        others: Any = ((3, "same"),) if has("calls.same") else ()
        others += ((4, "other"),) if has("calls.other") else ()
        compiles_long = swarm.place.as_trained  # what comes of many calls, CPUs show as well
        others += ((1, "many"),) if has("calls.many") and not compiles_long else ()
        self.calls = weighted((24, "one"), *others)
        self.few = weighted((4, 1), (2, 2), (1, 3))
        self.many = weighted((2, 5), (2, 8), (1, 10), (1, 12))
        self.flag = st.booleans()
        self.reuse = one_in(3)
        self._training_choices()
        forms: Any = ((3, "projections"),) if has("surround.projections") else ()
        forms += ((2, "rope"),) if has("surround.rope") else ()
        forms += ((1, "qk_norm"),) if has("surround.qk_norm") else ()
        self.surround = weighted((24, "none"), *forms)
        self.has_epilogue = one_in(8) if has("surround.epilogue") else st.just(False)
        self.epilogue = weighted((1, "scaled"), (1, "residual"), (1, "gated"))
        self.autocast = weighted(
            (14, None), *(((1, "bfloat16"), (1, "float16")) if has("autocast") else ())
        )
        self.grad_mode = weighted(
            (10, "default"), *(((1, "no_grad"), (1, "inference_mode")) if has("grad_mode") else ())
        )
        often = 2 if swarm.profile == "npu_fusion_attention" else 6  # where context parallel is met
        self.has_mesh = one_in(often) if has("mesh") else st.just(False)
        if swarm.profile == "ranks":
            self.has_mesh = st.just(True)
        self.world_size = weighted((2, 1), (4, 2), (2, 3), (3, 4), (1, 5), (2, 8), (1, 16), (1, 32))
        self.integrates = swarm.profile == "integrated"
        self.integration = weighted(
            (3, "custom_op"), (2, "custom_op_bshd"), (3, "autograd_function"),
            (2, "allow_in_graph"), (1, "disable"),
        )  # fmt: skip
        self.one_rank = swarm.place.one_rank
        self.real_ranks = swarm.profile == "ranks"
        self.ranks = weighted((6, 2), (3, 3), (5, 4), (1, 5), (1, 6), (2, 8))
        self.few_ranks = weighted((3, 2), (1, 3), (1, 4))
        self.placements = st.sampled_from(_placements())
        self.dirty = one_in(5) if has("dirty_memory") else st.just(False)

    def compile(self, draw: Draw, backend: Any) -> Compile | None:
        """How to compile with `backend`, or None where that is "none"."""
        if backend == "none":
            return None
        tuning = draw(self.tuning) if backend == "inductor" else "plain"
        options = draw(self.options) if tuning == "options" else {}
        return Compile(
            backend=backend,
            mode=draw(self.mode) if tuning == "mode" else None,
            dynamic=draw(self.dynamic),
            fullgraph=not draw(self.breaks),
            options=dict(LITE if tuning == "lite" else options),
        )

    def further_calls(
        self, draw: Draw, shape: Shape, square: bool, static: bool
    ) -> tuple[Call, ...]:
        """Calls after the first: of the same shape, of others, or many short ones. `square`:
        Lq == Lkv in each. `static`: each shape is compiled anew, so that many would be refused."""
        kind = draw(self.calls)
        if kind == "one":
            return ()
        if kind == "same":
            call = Call(
                batch=shape.batch,
                q_len=shape.q_len,
                kv_len=shape.kv_len,
                fresh_mods=not draw(self.reuse),
            )
            return (call,) * draw(self.few)
        if kind == "many":
            return self._many(draw, shape, square, static)
        return tuple(self._other(draw, shape, square) for _ in range(draw(self.few)))

    def _other(self, draw: Draw, shape: Shape, square: bool) -> Call:
        q_len, kv_len = self.shapes.lengths(draw)
        batch = draw(self.shapes.batch) if draw(self.flag) else shape.batch
        wanted = replace(shape, batch=batch, q_len=kv_len if square else q_len, kv_len=kv_len)
        fits = self.shapes.affordable(wanted)
        kept = ("q_heads", "head_dim", "v_head_dim")
        same = all(getattr(fits, name) == getattr(shape, name) for name in kept)
        return Call(
            batch=fits.batch if same else 1,
            q_len=fits.q_len if same else 1,
            kv_len=1 if square and not same else fits.kv_len,
            fresh_mods=not draw(self.reuse),
        )

    def _many(self, draw: Draw, shape: Shape, square: bool, static: bool) -> tuple[Call, ...]:
        same, fresh = draw(self.flag) or static, not draw(self.reuse)
        q_len, kv_len = self.shapes.short_lengths(draw, square)
        calls = []
        for _ in range(draw(self.many)):
            if not same:
                q_len, kv_len = self.shapes.short_lengths(draw, square)
            calls.append(Call(batch=shape.batch, q_len=q_len, kv_len=kv_len, fresh_mods=fresh))
        return tuple(calls)

    def mesh(self, draw: Draw, backend: str, trains: bool) -> Mesh:
        """One rank where the program is compiled or trained, else simulated ones; or real ones, few
        where each of them compiles C++."""
        q, k, v = draw(self.placements)
        simulable = backend == "none" and not trains
        if self.one_rank:
            size = draw(self.world_size)
            ranks: Any = "simulated" if simulable or size == 1 else "processes"
            return Mesh(world_size=size, ranks=ranks, q=q, k=k, v=v)
        if self.real_ranks:
            size = draw(self.few_ranks if backend == "inductor" else self.ranks)
            return Mesh(world_size=size, ranks="processes", q=q, k=k, v=v)
        size = draw(self.world_size) if simulable else 1
        return Mesh(world_size=size, q=q, k=k, v=v)

    def _training_choices(self) -> None:
        has = self.has
        often = 5 if self.shapes.place.as_trained else 2
        self.trains = weighted((1, False), *(((often, True),) if has("training") else ()))
        self.transforms = one_in(12) if has("transform") else st.just(False)
        self.transforms_compiled = one_in(40) if has("transform") else st.just(False)
        subsets: Any = tuple((1, wrt) for wrt in WRT) if has("training.subset") else ()
        self.wrt = weighted((8, ("q", "k", "v")), *subsets)
        laid: Any = ((2, "transposed"), (2, "expanded")) if has("training.grad_layout") else ()
        self.grad_layout = weighted((4, "contiguous"), *laid)
        self.double = one_in(6) if has("training.double") else st.just(False)

    def checkpoints(self, without: int) -> SearchStrategy[Any]:
        """Activation checkpoints, for fifteen in `without` + 15 of the programs."""
        kept: Any = ((7, "full"), (7, "selective"), (1, "reentrant"))
        return weighted((without, "none"), *(kept if self.has("surround.checkpoint") else ()))

    def training(self, draw: Draw, can_double: bool) -> Training:
        """`can_double`: torch has second derivatives for the program, as far as is known."""
        return Training(
            wrt=draw(self.wrt),
            grad_layout=draw(self.grad_layout),
            double=can_double and draw(self.double),
        )

    def draw_surround(self, draw: Draw, shape: Shape, alone: bool, moved: bool) -> Surround:
        """`alone`: q, k and v are inputs of their own, hence not projected. `moved`: the kernel's
        result is not `[B, Hq, Lq, Dv]` unless it is projected."""
        surround = self._projected(draw, shape, alone)
        if surround.rope and draw(self.flag):
            surround = replace(surround, rope_interleaved=True)
        if (moved and not surround.projections) or not draw(self.has_epilogue):
            return surround
        alike = shape.v_head_dim in (None, shape.head_dim)
        return replace(surround, epilogue=draw(self.epilogue) if alike else "scaled")

    def _projected(self, draw: Draw, shape: Shape, alone: bool) -> Surround:
        form = draw(self.surround)
        even = shape.head_dim % 2 == 0
        if form == "projections" and not alone and shape.q_heads * shape.head_dim <= MAX_PROJECTED:
            rope = even and self.has("surround.rope") and draw(self.flag)
            norm = self.has("surround.qk_norm") and draw(self.flag)
            return Surround(projections=True, rope=rope, qk_norm=norm)
        norm = self.has("surround.qk_norm") and form != "none" and draw(self.flag)
        return Surround(rope=form == "rope" and even, qk_norm=form == "qk_norm" or norm)


def _placements() -> list[tuple[Placement, Placement, Placement]]:
    """How q, k and v are spread: alike but not by head_dim, q's length alone (context parallel
    with gathered keys), or in any way."""
    ways: tuple[Placement, ...] = get_args(Placement)
    every = list(product(ways, ways, ways))
    alike = [(way, way, way) for way in ways[:-1]] * 20
    queries = [(ways[3], ways[0], ways[0])] * 30
    return [*alike, *queries, *every]
