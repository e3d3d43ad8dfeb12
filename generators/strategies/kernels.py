"""Kernels: how the attention is asked for, given its mask, shape and how it is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.specs import BlockMaskSpec, Flex, Handwritten, Sdpa
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal, Mask
from attnfuzz.generators.model.program import Shape
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.swarm import Swarm

SCALES = (None,) * 14 + (1.0, 0.5, 0.125, 0.0, -1.0, 2.0, 0.1, 0.001)
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


@dataclass(frozen=True)
class Setting:
    """What a kernel's choices depend on: the program's shape and mask, whether it has a score
    modification, its compile back-end ("none": eager), whether it trains, and whether torch may
    refuse it by design."""

    shape: Shape
    mask: Mask | None
    scored: bool
    backend: str
    training: bool
    refused: bool


class Kernels:
    """Kernels with the features of a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        self.has = has = swarm.has
        self.traced = swarm.profile == "traced"
        self.gpu = swarm.place.gpu
        self.scale = st.sampled_from(SCALES if has("any.scale") else (None,))
        self.gqa = one_in(8)
        self._sdpa_choices()
        self._flex_choices()
        self._handwritten_choices()

    def _sdpa_choices(self) -> None:
        forced = self.has("sdpa.backend")
        choices = [(6, "auto"), *([(2, "math"), (2, "flash")] if forced else [])]
        self.sdpa_backend = weighted(*choices)
        self.refused_backend = weighted((1, "flash"), (3, "efficient"))
        self.mask_form = weighted((3, "bool"), (2, "float"))
        self.causal_form = weighted((4, "is_causal"), (1, "bool"), (1, "float"))
        self.keeps_axis = one_in(3)
        self.mask_rank = weighted((3, 4), (2, 2), (1, 3))
        self.mask_gradient = one_in(3)

    def sdpa(self, draw: Draw, at: Setting) -> Sdpa:
        enable_gqa = draw(self.gqa) or at.shape.q_heads != at.shape.kv_heads
        scale = draw(self.scale)
        form = draw(self.causal_form if at.mask == Causal() else self.mask_form)
        if at.mask is None:
            form = "bool"
        broadcast: tuple[Any, ...] = ("b", "h")
        rank: Any = 4
        gradient = False
        if at.mask is not None and form != "is_causal":
            free = [a for a in ("b", "h", "q_idx", "kv_idx") if a not in mask_axes(at.mask)]
            broadcast = tuple(axis for axis in free if not draw(self.keeps_axis))
            rank = max(draw(self.mask_rank), 4 - _leading(broadcast))
            gradient = (
                form == "float" and at.training and self.has("sdpa.mask_gradient")
            ) and draw(self.mask_gradient)
        backend = draw(self.refused_backend if at.refused else self.sdpa_backend)
        if backend == "flash" and not at.refused:
            same_dim = at.shape.v_head_dim in (None, at.shape.head_dim)
            backend = "flash" if same_dim and rank != 3 and not gradient else "math"
        return Sdpa(
            backend=backend,
            scale=scale,
            mask_form=form,
            broadcast=broadcast,
            mask_rank=rank,
            mask_requires_grad=gradient,
            enable_gqa=enable_gqa,
        )

    def _flex_choices(self) -> None:
        has = self.has
        sizes = [(len(BLOCK_SIZES) // 2, BLOCK_SIZES[0])] + [(1, size) for size in BLOCK_SIZES[1:]]
        if self.gpu:  # tiles, of 128 mostly, have to divide blocks
            sizes += [(6, size) for size in BLOCK_SIZES[1:] if all(n % 128 == 0 for n in size)]
        self.block_size = weighted(*(sizes if has("flex.block_size") else sizes[:1]))
        self.wider = one_in(5)
        self.adjusted = one_in(5) if has("flex.adjusted") else st.just(False)
        self.extra = st.sampled_from(EXTRAS)
        self.spare = weighted((8, 0), (1, 1), (1, 3)) if has("flex.spare_batch") else st.just(0)
        made: Any = ((3, "inside"), (1, "cached")) if has("flex.inside") else ()
        self.made = weighted((16, "outside"), *made)
        if self.traced:
            self.made = weighted((2, "outside"), (2, "inside"), (3, "cached"))
        self.compiled = one_in(20) if has("flex.compiled_mask") else st.just(False)
        self.kernel_options = (
            weighted((60, {}), *((1, options) for options in KERNEL_OPTIONS))
            if has("flex.options")
            else st.just({})
        )
        written = ("nested", "partial", "method", "callable") if has("flex.mods") else ()
        self.mods = weighted((4 if self.traced else 12, "function"), *((1, s) for s in written))
        self.lse = one_in(5) if has("flex.lse") else st.just(False)

    def flex(self, draw: Draw, at: Setting) -> Flex:
        lse = draw(self.lse) and (self.gpu or at.backend != "inductor" or at.refused)
        return Flex(
            scale=draw(self.scale),
            block_mask=None if at.mask is None else self._block_mask(draw, at, at.mask),
            kernel_options=dict(draw(self.kernel_options)),
            return_lse=lse,
            enable_gqa=draw(self.gqa) or at.shape.q_heads != at.shape.kv_heads,
            mods="function" if at.mask is None and not at.scored else draw(self.mods),
        )

    def _block_mask(self, draw: Draw, at: Setting, mask: Mask) -> BlockMaskSpec:
        axes = mask_axes(mask)
        batch = "b" in axes or draw(self.wider)
        return BlockMaskSpec(
            block_size=draw(self.block_size),
            batch=batch,
            heads="h" in axes or draw(self.wider),
            made=draw(self.made),
            compiled=draw(self.compiled) and at.backend == "inductor",
            built_for_extra=draw(self.extra) if draw(self.adjusted) else (0, 0),
            spare_batch=draw(self.spare) if batch else 0,
        )

    def _handwritten_choices(self) -> None:
        self.usual = st.booleans()
        self.usual_scaling = weighted((1, "div"), (1, "mul"))
        self.product = weighted(
            (6, "matmul"), (2, "einsum"), (2, "bmm"), (1, "baddbmm"), (1, "rank5")
        )
        self.transpose = weighted((3, "transpose"), (1, "mT"), (1, "permute"))
        self.scaling = weighted(
            (5, "div"), (5, "mul"), (2, "query_mul"), (2, "query_div"), (1, "key_mul"), (1, "both"),
            (2, "none"),
        )  # fmt: skip
        self.scale_as = weighted((4, "constant"), (1, "tensor"))
        self.masking = weighted((3, "masked_fill"), (4, "add"), (2, "where"))
        self.fill = weighted((2, "-inf"), (3, "finfo_min"))
        self.softmax = weighted((6, "functional"), (2, "method"), (1, "module"), (1, "exp_sum"))
        self.transposed = one_in(8)
        self.softmax_dtype = weighted((3, "same"), (2, "float32"))
        self.dropout = one_in(4)
        self.repeat = weighted((1, "repeat_interleave"), (1, "expand"))
        self.out_layout = weighted((4, "bhld"), (1, "blhd"), (2, "merged"))

    def handwritten(self, draw: Draw, at: Setting) -> Handwritten:
        """As models mostly write it (which is what Inductor fuses), or in any other way."""
        spec = self._any_handwritten(draw, at)
        if not draw(self.usual):
            return spec
        return replace(
            spec,
            product="matmul",
            scaling=draw(self.usual_scaling),
            scale=None,
            scale_as="constant",
            softmax="functional",
            transposed=False,
        )

    def _any_handwritten(self, draw: Draw, at: Setting) -> Handwritten:
        scaling, scale = draw(self.scaling), draw(self.scale)
        if scaling == "none" or (scale is not None and scale <= 0 and scaling != "mul"):
            scale = None
        grouped = at.shape.q_heads != at.shape.kv_heads
        softmax = draw(self.softmax)
        return Handwritten(
            product=draw(self.product),
            transpose=draw(self.transpose),
            scaling=scaling,
            scale=scale,
            scale_as=draw(self.scale_as),
            masking=draw(self.masking) if at.mask is not None else "masked_fill",
            fill=draw(self.fill) if at.mask is not None else "-inf",
            softmax=softmax if at.shape.kv_len or softmax != "exp_sum" else "functional",
            transposed=draw(self.transposed),
            softmax_dtype=draw(self.softmax_dtype),
            dropout=draw(self.dropout),
            gqa=draw(self.repeat) if grouped else "repeat_interleave",
            out_layout=draw(self.out_layout),
        )


def _leading(broadcast: tuple[str, ...]) -> int:
    """How many leading axes of a mask may be dropped, as they are broadcast."""
    return 2 if {"b", "h"} <= set(broadcast) else 1 if "b" in broadcast else 0
