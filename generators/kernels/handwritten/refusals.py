"""Refusals of the operations that attention by hand is made of."""

from __future__ import annotations

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.handwritten.spec import Handwritten
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD, MESH
from attnfuzz.generators.model.program import Program


def products_dtypes_may_differ(program: Program) -> bool:
    """As `conditions.dtypes_may_differ`, of products: autocast gives them one dtype."""
    return program.autocast is None and conditions.dtypes_may_differ(program)


def exp_sum_over_nothing(program: Program) -> bool:
    """Whether the softmax takes a maximum over keys, and some call has none (Lkv == 0)."""
    kernel = program.kernel
    by_maximum = isinstance(kernel, Handwritten) and kernel.softmax == "exp_sum"
    return by_maximum and any(kv_len == 0 for _, kv_len in conditions.lengths(program))


def expands_to_a_marked_size(program: Program) -> bool:
    """Whether the keys are expanded to sizes that are constants, as there is one call, and of which
    one is marked as unbacked."""
    kernel = program.kernel
    expands = isinstance(kernel, Handwritten) and kernel.gqa == "expand"
    return expands and not program.calls and conditions.marks_unbacked(program)


HANDWRITTEN: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"expected m1 and m2 to have the same dtype|mat1 and mat2 must have the same dtype|"
        r"expected scalar type \S+ but found \S+|both inputs should have same dtype",
        why="matrix products take operands of one dtype",
        needs=products_dtypes_may_differ,
    ),
    Refusal(
        pattern=r"a?max\(\): Expected reduction dim -?\d+ to have non-zero size",
        why="a maximum over no keys is not defined",
        needs=exp_sum_over_nothing,
    ),
    Refusal(
        pattern=r"PendingUnbackedSymbolNotFound: Pending unbacked symbols",
        why="a size that is marked as unbacked is a constant in the function",
        needs=expands_to_a_marked_size,
        thread="pytorch/pytorch#174150",
    ),
)

REFUSALS: tuple[Refusal, ...] = (*HANDWRITTEN, *AUTOGRAD, *MESH)
