"""Programs of SDPA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.strategies.composed import Composed, Setting
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Parts, scales


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
        self.refused_backend = weighted((1, "flash"), (3, "efficient"))
        self.mask_form = weighted((3, "bool"), (2, "float"))
        self.causal_form = weighted((4, "is_causal"), (1, "bool"), (1, "float"))
        self.keeps_axis = one_in(3)
        self.mask_rank = weighted((3, 4), (2, 2), (1, 3))
        self.mask_gradient = one_in(3)

    def kernel(self, draw: Draw, at: Setting) -> Sdpa:
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
        backend = draw(self.refused_backend if at.refused else self.backend)
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

    def fit_integration(self, kernel: Sdpa) -> Sdpa:
        return replace(kernel, mask_requires_grad=False)


def _leading(broadcast: tuple[str, ...]) -> int:
    """How many leading axes of a mask may be dropped, as they are broadcast."""
    return 2 if {"b", "h"} <= set(broadcast) else 1 if "b" in broadcast else 0
