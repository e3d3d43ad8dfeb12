"""Refusals of transformers' attention: torch's own on a CPU."""

from __future__ import annotations

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.kernels.transformers.spec import Transformers
from attnfuzz.generators.model.program import Program


def differentiates_flex(program: Program) -> bool:
    """Whether it trains with flex_attention."""
    kernel = program.kernel
    flex = isinstance(kernel, Transformers) and kernel.implementation == "flex_attention"
    return flex and conditions.differentiates(program)


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"FlexAttention does not support backward on (CPU|MPS)\.",
        why="flex_attention has no backward on this device",
        needs=differentiates_flex,
    ),
    *AUTOGRAD,
)
