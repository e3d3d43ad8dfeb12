"""Programs of flex_attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.flex.paged import Paged
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec, Flex
from attnfuzz.generators.kernels.flex.step_drawing import Steps, fitting_calls
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import And, Mask, Or
from attnfuzz.generators.model.program import Call, Program, Shape
from attnfuzz.generators.model.scores import ScoreMod
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.composed import Composed, Dtypes, Setting
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Parts, scales
from attnfuzz.generators.strategies.shapes import affordable

BLOCK_SIZES = (
    (128, 128), (16, 16), (32, 32), (64, 64), (256, 256), (64, 128), (128, 64), (8, 128), (128, 32),
    (48, 48), (7, 16), (100, 100), (128, 1), (1, 128), (1024, 1024), (3, 5), (128, 256), (96, 40),
)  # fmt: skip
EXTRAS = ((0, 128), (128, 0), (128, 128), (0, 256), (256, 256), (64, 0), (1, 1), (100, 300), (0, 1))
KERNEL_OPTIONS: tuple[dict[str, int | bool | str], ...] = (
    {"PRESCALE_QK": True}, {"ROWS_GUARANTEED_SAFE": True}, {"BLOCKS_ARE_CONTIGUOUS": True},
    {"BLOCK_M": 32, "BLOCK_N": 32}, {"BLOCK_M": 64}, {"num_stages": 1}, {"num_warps": 2},
    {"BACKEND": "TRITON"}, {"FORCE_USE_FLEX_ATTENTION": True}, {"SPLIT_KV": 2}, {"USE_TMA": False},
)  # fmt: skip

# What each direction may have of its own, and loads by TMA: of a CPU's kernel they change nothing.
CARD_OPTIONS: tuple[dict[str, int | bool | str], ...] = (
    {"fwd_num_stages": 1, "bwd_num_warps": 2}, {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 64},
    {"bwd_BLOCK_M1": 32, "bwd_BLOCK_N1": 32, "bwd_BLOCK_M2": 32, "bwd_BLOCK_N2": 32},
    {"USE_TMA": True},
)  # fmt: skip


PAGES = (4, 16, 1, 7, 8, 32, 64, 128)


class Drawing(Composed):
    """flex_attention with score modifications and BlockMasks. It trains on GPUs alone, but for the
    tables that a score_mod captures: of these eager torch has gradients on a CPU too."""

    kind = "flex"
    refused = ("training", "mixed", "double_precision", "lse", "transform")
    transforms = False
    without_checkpoint = 90

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.trains = self.gpu
        self.table_trains = one_in(6 if self.gpu else 3) if self.has("training") else st.just(False)
        self.has_mask = weighted((1, "none"), *self.causal, (4, "tree"))
        self.has_score = weighted((4, False), (5, True))
        self.transform = weighted((1, "vmap"), (1, "grad"), (1, "jvp"))
        self.traced = self.swarm.profile == "traced"
        about_masks = self.traced or self.swarm.profile == "block_masks"
        self.several_blocks = about_masks and not self.gpu
        self.scale, self.gqa, self.empty = scales(self.swarm), one_in(8), one_in(8)
        has = self.has
        sizes = [(len(BLOCK_SIZES) // 2, BLOCK_SIZES[0])] + [(1, size) for size in BLOCK_SIZES[1:]]
        if self.gpu:  # tiles, of 128 mostly, have to divide blocks
            sizes += [(6, size) for size in BLOCK_SIZES[1:] if all(n % 128 == 0 for n in size)]
        if not has("flex.block_size"):
            sizes = sizes[:1]
        if self.several_blocks:  # a mask of one block has nothing to be kept or remade
            sizes += [(len(sizes) + 8, (16, 16)), (len(sizes) + 4, (32, 32))]
        self.block_size = weighted(*sizes)
        self.wider = one_in(5)
        self.adjusted = one_in(5) if has("flex.adjusted") else st.just(False)
        self.extra = st.sampled_from(EXTRAS)
        orders: Any = ((1, "ascending"), (1, "descending")) if has("flex.mask_steps") else ()
        self.write_order: Any = weighted((8 if about_masks else 24, "none"), *orders)
        self.spare = weighted((8, 0), (1, 1), (1, 3)) if has("flex.spare_batch") else st.just(0)
        made: Any = ((3, "inside"), (1, "cached")) if has("flex.inside") else ()
        self.made = weighted((16, "outside"), *made)
        if self.traced:
            self.made = weighted((2, "outside"), (2, "inside"), (3, "cached"))
        self.compiled = (
            weighted((36, "no"), (1, "flag"), (1, "call"))
            if has("flex.compiled_mask")
            else st.just("no")
        )
        self.is_other = one_in(14) if has("flex.other_extents") else st.just(False)
        self.other: Any = weighted((3, 0), (3, 1), (1, 2))
        self.of_batch: Any = weighted((3, "more"), (3, "fewer"), (2, "one"))
        self.other_length, self.length = one_in(6), st.sampled_from((2, 3))
        self.by = st.sampled_from((1, 128, -1, 16))
        self.steps = Steps(has("flex.mask_steps"), about_masks)
        options = KERNEL_OPTIONS + (CARD_OPTIONS if self.gpu else ())
        self.kernel_options = (
            weighted((60, {}), *((1, one) for one in options))
            if has("flex.options")
            else st.just({})
        )
        written = ("nested", "partial", "method", "callable", "lambda") if has("flex.mods") else ()
        self.mods = weighted((4 if self.traced else 12, "function"), *((1, s) for s in written))
        self.joints: Any = weighted((2, "operators"), (1, "functions"))
        self.joined: Any = weighted((1, "operators"), (2, "functions"))
        self.computed = one_in(6) if has("flex.computed") else st.just(False)
        self.lse = one_in(5) if has("flex.lse") else st.just(False)
        self.is_paged = one_in(16) if has("flex.paged") else st.just(False)
        self.page = st.just(128) if self.gpu else st.sampled_from(PAGES)
        self.converted: Any = weighted((2, "block_mask"), (1, "mask_mod"))
        self.page_parts: Any = weighted((3, 1), (2, 2))
        self.spare_pages = weighted((3, 0), (2, 1), (1, 3))
        self.first = weighted((12, 0), (1, 1))  # which torch gets wrong: attention-gym#189
        self.erased = one_in(12)  # which it gets wrong too
        self.has_length = weighted((3, True), (1, False))

    def kernel(self, draw: Draw, at: Setting) -> Flex:
        lse = draw(self.lse) and (self.gpu or at.backend != "inductor" or at.refused)
        block_mask = None if at.mask is None else self._block_mask(draw, at, at.mask)
        here = at.scored or (block_mask is not None and block_mask.made != "outside")
        return Flex(
            scale=draw(self.scale),
            block_mask=block_mask,
            kernel_options=dict(draw(self.kernel_options)),
            return_lse=lse,
            enable_gqa=draw(self.gqa) or at.shape.q_heads != at.shape.kv_heads,
            mods="function" if at.mask is None and not at.scored else draw(self.mods),
            joints=self._joints(draw, at.mask),
            computed=here and draw(self.computed),
        )

    def _joints(self, draw: Draw, mask: Mask | None) -> Any:
        if mask is None or not self.has("flex.joints"):
            return "operators"
        return draw(self.joined if isinstance(mask, And | Or) else self.joints)

    def _block_mask(self, draw: Draw, at: Setting, mask: Mask) -> BlockMaskSpec:
        axes = mask_axes(mask)
        batch = "b" in axes or draw(self.wider)
        compiled, block_size = draw(self.compiled), draw(self.block_size)
        if self.several_blocks and 16 < at.shape.kv_len <= block_size[1]:
            block_size = (16, 16)
        spec = BlockMaskSpec(
            block_size=block_size,
            batch=batch,
            heads="h" in axes or draw(self.wider),
            made=draw(self.made),
            compiled=compiled == "flag" and at.backend == "inductor",
            compiled_call=compiled == "call" and at.backend == "inductor",
            built_for_extra=draw(self.extra) if draw(self.adjusted) else (0, 0),
            spare_batch=draw(self.spare) if batch else 0,
            full_blocks=draw(self.steps.full_blocks),
            dq_write_order=draw(self.write_order),
        )
        if draw(self.is_other):
            return self._of_other_extents(draw, spec, at.shape)
        spec = self.steps.draw(draw, spec, at.shape, at.training)
        inside = bool(spec.steps) and draw(self.steps.inside) and spec.made == "outside"
        inside = inside and not any(step.looks for step in spec.steps)
        return replace(spec, steps_inside=inside)

    def _of_other_extents(self, draw: Draw, spec: BlockMaskSpec, shape: Shape) -> BlockMaskSpec:
        """A BlockMask for another batch or other heads than q has, seldom for another length, which
        torch refuses."""
        where = draw(self.other)
        other: Any = [0, 0, 0, 0]
        for place, extent in enumerate((shape.batch, shape.q_heads)):
            if where in (place, 2):
                which = draw(self.of_batch)
                less = {"more": 1, "fewer": -1, "one": 1 - extent}[which]
                other[place] = less if extent + less > 0 else 1
        if draw(self.other_length):
            other[draw(self.length)] = draw(self.by)
        if min(shape.q_len, shape.kv_len) + min(other[2:]) < 1:
            return spec
        return replace(
            spec, other=tuple(other), batch=spec.batch or bool(other[0]), spare_batch=0,
            heads=spec.heads or bool(other[1]), built_for_extra=(0, 0),
        )  # fmt: skip

    def _run(self, draw: Draw, p: Program, backend: str) -> Program:
        p = super()._run(draw, p, backend)
        return self._paged(draw, p) if p.mask is not None and draw(self.is_paged) else p

    def _paged(self, draw: Draw, p: Program) -> Program:
        """The program with k and v in pages, where it may: each entry's scores are those of all
        entries' tokens, most of them hidden."""
        kernel = p.kernel
        assert isinstance(kernel, Flex) and kernel.block_mask is not None
        block_mask = BlockMaskSpec(
            block_size=(kernel.block_mask.block_size[0], draw(self.page)),
            batch=True,
            heads=kernel.block_mask.heads,
            full_blocks=kernel.block_mask.full_blocks,
            paged=Paged(
                converted=draw(self.converted), parts=draw(self.page_parts),
                spare=draw(self.spare_pages), first=draw(self.first), erased=draw(self.erased),
                kv_len=draw(self.has_length),
            ),
        )  # fmt: skip
        fixed = p.compile is not None and p.compile.backend == "inductor"
        paged = self.plugin.fitted(
            replace(
                p,
                kernel=replace(kernel, block_mask=block_mask),
                transform="none",
                mesh=None,
                # Of a size that changes the CPU's kernel has no name: corpus/cases/98d32842.
                calls=() if fixed else p.calls,
            )
        )
        batch = max(1, p.shape.batch, *(call.batch for call in paged.calls))
        whole = replace(p.shape, kv_len=p.shape.kv_len * batch)
        dear = affordable(whole, self.swarm.place.max_cost) != whole
        return p if dear or problems(paged) else paged

    def fit_calls(self, kernel: Flex, calls: tuple[Call, ...]) -> tuple[Call, ...]:
        if kernel.block_mask is None or any(kernel.block_mask.other):
            return calls if kernel.block_mask is None else ()
        return fitting_calls(kernel.block_mask, calls)

    def score_mod(self, draw: Draw, shape: Shape, trains: bool) -> ScoreMod | None:
        return self.scores.draw(draw, shape, learnable=trains) if draw(self.has_score) else None

    def learned_score_mod(
        self, draw: Draw, shape: Shape, backend: str, trains: bool
    ) -> ScoreMod | None:
        # A CPU trains a table alone, and not with Inductor.
        possible = self.gpu or not (trains or backend == "inductor")
        return self.scores.learned(draw, shape) if possible and draw(self.table_trains) else None

    def float64(self, backend: str) -> bool:
        return backend != "inductor"

    def fit_shape(self, draw: Draw, shape: Shape) -> Shape:
        shape = self.shapes.for_flex(shape)
        # Eager torch refuses empty sequences by design, and what is compiled ends with a signal.
        if min(shape.q_len, shape.kv_len) > 0 or draw(self.empty):
            return shape
        return replace(shape, q_len=max(shape.q_len, 1), kv_len=max(shape.kv_len, 1))

    def fit_forward(self, shape: Shape) -> Shape:
        return self.shapes.forward_only(shape)

    def fit_dtypes(self, draw: Draw, dtypes: Dtypes) -> Dtypes:
        return self.inputs.for_flex(draw, dtypes)

    def fit_gradient_of_v(self, kernel: Flex) -> Flex:
        """The log-sum-exp does not depend on v."""
        return replace(kernel, return_lse=False)
