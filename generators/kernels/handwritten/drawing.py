"""Programs of attention by hand."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from attnfuzz.generators.kernels.handwritten.spec import Handwritten
from attnfuzz.generators.kernels.scaling import DIVIDED, whole_divisor
from attnfuzz.generators.model.program import Call, Program
from attnfuzz.generators.strategies.composed import Composed, Setting
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.dropout import Dropout
from attnfuzz.generators.strategies.kernel import Parts, scales


class Drawing(Composed):
    """Attention by hand in every way that it is written."""

    kind = "handwritten"
    refused = ("mixed", "plain_mask")

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.scale = scales(self.swarm)
        self.usual = st.booleans()
        self.usual_scaling = weighted((1, "div"), (1, "mul"))
        self.product = weighted(
            (6, "matmul"), (2, "einsum"), (2, "bmm"), (2, "baddbmm"), (1, "rank5")
        )
        self.transpose = weighted((3, "transpose"), (1, "mT"), (1, "permute"))
        self.scaling = weighted(
            (5, "div"), (5, "mul"), (2, "query_mul"), (2, "query_div"), (1, "key_mul"), (1, "both"),
            (2, "none"),
        )  # fmt: skip
        self.scale_as = weighted((8, "constant"), (2, "tensor"), (3, "integer"))
        self.masking = weighted((3, "masked_fill"), (4, "add"), (2, "where"))
        self.fill = weighted((2, "-inf"), (3, "finfo_min"))
        self.softmax = weighted((6, "functional"), (2, "method"), (1, "module"), (1, "exp_sum"))
        self.transposed = one_in(8)
        self.softmax_dtype = weighted((3, "same"), (2, "float32"))
        self.dropout = one_in(4)
        self.repeat = weighted((1, "repeat_interleave"), (1, "expand"))
        self.dropped = Dropout(self.swarm)
        self.out_layout = weighted((4, "bhld"), (1, "blhd"), (2, "merged"))

    def draw(self, draw: Draw, backend: str) -> Program:
        return self.dropped.draw(draw, super().draw(draw, backend))

    def kernel(self, draw: Draw, at: Setting) -> Handwritten:
        """As models mostly write it (which is what Inductor fuses), or in any other way."""
        spec = self._any_handwritten(draw, at)
        if draw(self.usual):
            spec = replace(
                spec,
                product="matmul",
                scaling=draw(self.usual_scaling),
                scale=None,
                scale_as="constant" if spec.scale_as == "tensor" else spec.scale_as,
                softmax="functional",
                transposed=False,
            )
        elif spec.product == "baddbmm" and draw(self.usual):
            # As BLOOM writes it: the scaled product is added to the mask.
            masking = "add" if at.mask is not None else spec.masking
            spec = replace(spec, scaling="mul", scale_as="constant", masking=masking)
        whole = spec.scaling in DIVIDED and whole_divisor(spec.scale, at.shape.head_dim)
        if spec.scale_as == "integer" and not whole:
            return replace(spec, scale_as="constant")
        return spec

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

    def double_backward(self, backend: str) -> bool:
        return backend in ("none", "eager")

    def fit_calls(self, kernel: Handwritten, calls: tuple[Call, ...]) -> tuple[Call, ...]:
        """A maximum over no keys is not defined."""
        if kernel.softmax != "exp_sum":
            return calls
        return tuple(call for call in calls if call.kv_len)

    def fit_integration(self, kernel: Handwritten) -> Handwritten:
        return replace(kernel, out_layout="bhld")
