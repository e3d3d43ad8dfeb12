"""Programs of SDPA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.sdpa.attn_mask import BIASES, keeps_least
from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal, KeyPadding, Mask
from attnfuzz.generators.model.program import Call, Modes, Program, Shape
from attnfuzz.generators.strategies.composed import Composed, Setting
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.dropout import Dropout
from attnfuzz.generators.strategies.kernel import Parts, scales
from attnfuzz.generators.strategies.swarm import CPU


class Drawing(Composed):
    """SDPA with every form of mask that it takes."""

    kind = "sdpa"
    refused = ("backend", "backend", "mixed", "double", "forward_ad", "plain_mask")

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.has_mask = weighted((2, "none"), (3, "causal"), (3, "tree"))
        self.transform = weighted((2, "vmap"), (2, "grad"))
        self.scale, self.gqa = scales(self.swarm), one_in(8)
        forced = self.has("sdpa.backend")
        choices = [(6, "auto"), *([(2, "math"), (2, "flash")] if forced else [])]
        self.backend = weighted(*choices)
        self.set_priority = one_in(3)
        self.refused_backend = weighted((1, "flash"), (3, "efficient"))
        self.mask_form = weighted((3, "bool"), (2, "float"))
        self.causal_form = weighted((4, "is_causal"), (1, "bool"), (1, "float"))
        self.keeps_axis = one_in(3)
        self.mask_rank = weighted((3, 4), (2, 2), (1, 3))
        self.mask_gradient = one_in(3)
        self.about = about = self.swarm.profile == "sdpa_forms"
        self.has_rank = one_in(2 if about else 8)
        self.input_rank = weighted((4, 3), (2, 5))
        self.gives_bias = one_in(2 if about else 4)
        self.is_bias = one_in(2)
        self.is_upper = one_in(2)
        self.is_aligned = one_in(3)
        self.has_bias_numbers, self.is_wide = one_in(2), one_in(3)
        self.fill = weighted((1, "-inf"), (1, "finfo_min"))
        self.is_laid_out = one_in(2 if about else 8)
        self.mask_layout = weighted((2, "transposed"), (1, "strided"), (2, "expanded"))
        self.drops_row = one_in(2)
        self.hides_keys = one_in(8) if self._may("sdpa.ranks") else st.just(False)
        self.dropped = Dropout(self.swarm)
        self.warns = one_in(2)

    def draw(self, draw: Draw, backend: str) -> Program:
        p = self.dropped.draw(draw, super().draw(draw, backend))
        kernel = p.kernel
        if not isinstance(kernel, Sdpa):
            return p
        if kernel.dropout_p:
            p = replace(p, kernel=replace(kernel, mask_dtype="query"))
        looks = kernel.mask_form == "lower_right" and p.compile is None and p.mesh is None
        if looks and self.swarm.place == CPU and draw(self.warns):
            return replace(p, modes=Modes(warn_for_unfused_kernels=True))
        return p

    def _mask(self, draw: Draw, shape: Shape) -> Mask | None:
        """Sometimes the causal one that is aligned to the bottom right, which a bias may say; or
        one of keys alone, which may have one dimension."""
        if draw(self.hides_keys):
            return KeyPadding(per_batch=False)
        aligned = Causal(offset=shape.kv_len - shape.q_len)
        if self.about and draw(self.is_aligned):
            return aligned
        mask = super()._mask(draw, shape)
        if mask == Causal() and self._may("sdpa.bias") and draw(self.is_bias):
            return aligned
        return mask

    def _may(self, feature: str) -> bool:
        """Whether programs may have the feature: those of the profile that is about it do."""
        return self.about or self.has(feature)

    def _run(self, draw: Draw, p: Program, backend: str) -> Program:
        """Without the calls whose lengths the mask does not fit, and a fill that casts do not."""
        p = super()._run(draw, p, backend)
        kernel = p.kernel
        if isinstance(kernel, Sdpa) and not keeps_least(p, kernel):
            p = replace(p, kernel=replace(kernel, mask_fill="-inf"))
        return replace(p, calls=tuple(call for call in p.calls if _fits(p, call)))

    def kernel(self, draw: Draw, at: Setting) -> Sdpa:
        enable_gqa = draw(self.gqa) or at.shape.q_heads != at.shape.kv_heads
        scale = draw(self.scale)
        form = draw(self.causal_form if at.mask == Causal() else self.mask_form)
        if at.mask is None:
            form = "bool"
        biases = _biases(at)
        often = self.gives_bias if at.mask == Causal() else self.is_bias
        if biases and self._may("sdpa.bias") and draw(often):
            form = biases[0] if draw(self.is_upper) else biases[-1]
        broadcast: tuple[Any, ...] = ("b", "h")
        rank: Any = 4
        gradient = False
        if at.mask is not None and form in ("bool", "float"):
            free = [a for a in ("b", "h", "q_idx", "kv_idx") if a not in mask_axes(at.mask)]
            broadcast = tuple(axis for axis in free if not draw(self.keeps_axis))
            rank = max(draw(self.mask_rank), 4 - _leading(broadcast))
            gradient = (
                form == "float" and at.training and self.has("sdpa.mask_gradient")
            ) and draw(self.mask_gradient)
        backend = draw(self.refused_backend if at.refused else self.backend)
        if backend == "flash" and not at.refused:
            same_dim = at.shape.v_head_dim in (None, at.shape.head_dim)
            backend = "flash" if same_dim and rank != 3 and not gradient else "math"
        kernel = Sdpa(
            backend=backend,
            set_priority=backend != "auto" and not at.refused and draw(self.set_priority),
            scale=scale,
            mask_form=form,
            broadcast=broadcast,
            mask_rank=rank,
            mask_requires_grad=gradient,
            enable_gqa=enable_gqa,
        )
        if at.mask is not None and self._may("sdpa.mask_tensor"):
            kernel = self._mask_tensor(draw, kernel)
        if not at.refused and self._may("sdpa.ranks") and draw(self.has_rank):
            kernel = self._rank(draw, kernel, at)
        return kernel

    def _mask_tensor(self, draw: Draw, kernel: Sdpa) -> Sdpa:
        """The kernel with another dtype, other numbers or another layout of its mask."""
        if kernel.mask_form == "float":
            kernel = replace(
                kernel,
                mask_bias=draw(self.has_bias_numbers),
                mask_dtype="float32" if draw(self.is_wide) else "query",
                mask_fill=draw(self.fill),
            )
        if kernel.mask_form in ("bool", "float") and draw(self.is_laid_out):
            kernel = replace(kernel, mask_layout=draw(self.mask_layout))
        return kernel

    def _rank(self, draw: Draw, kernel: Sdpa, at: Setting) -> Sdpa:
        rank = draw(self.input_rank)
        if at.shape.batch == at.shape.q_heads == 1:
            rank = 2
        backend = "math" if kernel.backend == "flash" else kernel.backend
        kernel = replace(
            kernel,
            input_rank=rank,
            backend=backend,
            enable_gqa=kernel.enable_gqa and rank != 2 and (rank != 5 or draw(self.is_bias)),
        )
        rows = at.mask is not None and "q_idx" in kernel.broadcast and _leading(kernel.broadcast)
        if rows == 2 and kernel.mask_layout != "transposed" and draw(self.drops_row):
            return replace(kernel, mask_rank=1)
        return kernel

    def fit_integration(self, kernel: Sdpa) -> Sdpa:
        form = "bool" if kernel.mask_form in BIASES else kernel.mask_form
        return replace(kernel, mask_requires_grad=False, mask_form=form, mask_dtype="query")


def _leading(broadcast: tuple[str, ...]) -> int:
    """How many leading axes of a mask may be dropped, as they are broadcast."""
    return 2 if {"b", "h"} <= set(broadcast) else 1 if "b" in broadcast else 0


def _biases(at: Setting) -> list[str]:
    """The forms that say the mask by a tensor subclass."""
    forms = ["upper_left"] * (at.mask == Causal())
    aligned = at.mask == Causal(offset=at.shape.kv_len - at.shape.q_len)
    return forms + ["lower_right"] * aligned


def _fits(p: Program, call: Call) -> bool:
    kernel = p.kernel
    assert isinstance(kernel, Sdpa)
    if kernel.input_rank == 2 and call.batch != 1:
        return False
    aligned = p.mask == Causal(offset=call.kv_len - call.q_len)
    return kernel.mask_form != "lower_right" or aligned
