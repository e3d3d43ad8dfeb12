"""Refusals of what graphs are made of."""

from __future__ import annotations

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.model.program import Program


def fixes_a_marked_size(program: Program) -> bool:
    """Whether a size that is marked as unbacked meets a constant: that of a mask, which is never
    marked, or the length of the whole where a graph decodes."""
    kernel = program.kernel
    decodes = isinstance(kernel, Graph) and kernel.decode is not None
    return conditions.marks_unbacked(program) and (decodes or program.mask is not None)


REFUSALS: tuple[Refusal, ...] = (
    *AUTOGRAD,
    Refusal(
        pattern=r"PendingUnbackedSymbolNotFound: Pending unbacked symbols",
        why="a size that is marked as unbacked is a constant in the function",
        needs=fixes_a_marked_size,
        thread="pytorch/pytorch#174150",
    ),
)
