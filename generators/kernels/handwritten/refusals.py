"""Refusals of the operations that attention by hand is made of."""

from __future__ import annotations

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.handwritten.spec import Handwritten
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD, MESH
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene


def products_dtypes_may_differ(program: Program) -> bool:
    """As `conditions.dtypes_may_differ`, of products: autocast gives them one dtype."""
    return program.autocast is None and conditions.dtypes_may_differ(program)


def exp_sum_over_nothing(program: Program) -> bool:
    """Whether the softmax takes a maximum over keys, and some call has none (Lkv == 0)."""
    kernel = program.kernel
    by_maximum = isinstance(kernel, Handwritten) and kernel.softmax == "exp_sum"
    return by_maximum and any(kv_len == 0 for _, kv_len in conditions.lengths(program))


def fixes_a_marked_size(program: Program) -> bool:
    """Whether a size that is marked as unbacked meets a constant: the keys are expanded to it where
    there is one call, or there is a mask, whose sizes are never marked."""
    kernel = program.kernel
    expands = isinstance(kernel, Handwritten) and kernel.gqa == "expand" and not program.calls
    return conditions.marks_unbacked(program) and (expands or program.mask is not None)


def ranks_may_agree_on_nan(program: Program) -> bool:
    """Whether a query may see no key, so that a softmax over -inf gives NaN, on simulated ranks."""
    kernel, mesh = program.kernel, program.mesh
    infinite = isinstance(kernel, Handwritten) and kernel.fill == "-inf"
    simulated = mesh is not None and mesh.ranks == "simulated"
    return infinite and simulated and may_hide_everything(program.mask, Scene(program))


HANDWRITTEN: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"expected m1 and m2 to have the same dtype|mat1 and mat2 must have the same dtype|"
        r"expected scalar type \S+ but found \S+|both inputs should have same dtype|"
        r"Input dtypes must be the same, got",
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
        needs=fixes_a_marked_size,
        thread="pytorch/pytorch#174150",
    ),
    Refusal(
        pattern=r"LocalTensor shards must be the same to reconcile",
        why="simulated ranks that all hold NaN are not equal for LocalTensor",
        needs=ranks_may_agree_on_nan,
    ),
)

REFUSALS: tuple[Refusal, ...] = (*HANDWRITTEN, *AUTOGRAD, *MESH)
