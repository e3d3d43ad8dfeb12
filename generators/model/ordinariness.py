"""How ordinary a program is: what in it models do not do, each with a weight.

0 is a program that a model might hold as it is: contiguous tensors or `[B, L, H, D]` storage seen
as `[B, H, L, D]`, float32, bfloat16 or float16, a head_dim that is a power of two, any lengths,
masks and biases that models use, grouped queries, training, any back-end and mode of torch.compile.
Each thing that is not of that sort adds its weight: 3 some models, 8 few, 15 hardly any, 30 none.
What is not named here is not uncommon. Extents of 16 are what minimization leaves, and say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.program import Layout, Program

ORDINARY = 8
"""The highest score of a program that is called ordinary: one thing that few models do."""


@dataclass(frozen=True)
class Uncommon:
    """One thing that models do not do: its `weight`, and `what` it is in words."""

    weight: int
    what: str


BY_FEATURE: tuple[tuple[str, int, str], ...] = (
    # values: torch's maintainers call the extremes edge cases
    (r"values\.\w+\.(nan|inf|denormal)", 30, "values that are NaN, infinite or denormal"),
    (r"values\.\w+\.nan_at_masked", 15, "NaN behind the mask"),
    (r"values\.\w+\.huge", 15, "values of a hundred standard deviations"),
    (r"values\.\w+\.(zeros|ones|one_hot|negative)", 3, "values all alike, or of one sign"),
    # options of the kernels
    (r".*\.scale\.(0|negative)", 30, "a scale of 0 or below"),
    (r"kernel\.sdpa\.mask_layout\..*", 8, "a mask that is not contiguous"),
    (r"kernel\.sdpa\.mask_dtype\..*", 3, "a mask of another dtype than q"),
    (r"kernel\.sdpa\.mask_requires_grad", 3, "a mask with a gradient"),
    (r"kernel\.sdpa\.input_rank\.[25]", 8, "q, k and v of two or of five dimensions"),
    (r"kernel\.handwritten\.scale_as\.tensor", 3, "a scale that is a tensor"),
    (r"kernel\.\w+\.scale_from\.q_len", 3, "a scale computed from the length"),
    (r"kernel_options\..*", 3, "options of flex_attention's kernels"),
    (r"block_mask\.(adjusted|spare_batch)", 8, "a BlockMask that is cut down"),
    (r"block_mask\.other\..*", 15, "a BlockMask for another batch, or other heads, than q has"),
    (r"block_mask\.cached", 8, "a BlockMask kept by the identity of its mask_mod"),
    # masks and scores
    (r"score\.truth", 30, "a score_mod that returns a truth value"),
    (r"score\.integral", 30, "a score_mod that returns an integer"),
    (r"score\.ignores_score", 15, "a score_mod that ignores the score"),
    (r"(score\.lookup|mask\.table|int\.lookup)\.chained", 3, "a table indexed twice"),
    (r"score\.repeated", 15, "a score_mod of many like steps"),
    (r"mask\.(all_false|single)", 8, "a mask that hides nearly everything"),
    (r"mask\.(compare|not)", 3, "a mask of comparisons that no model has by name"),
    (r"table\.unit", 3, "a table with a dimension of one"),
    # what is around, how it is compiled and run
    (r"training\.double", 8, "second derivatives"),
    (r"transform\..*", 8, "a functorch transform"),
    (r"surround\.integration\..*", 3, "a kernel behind a custom operator or a wrapper"),
    (r"surround\.region", 3, "a nested_compile_region"),
    (r"surround\.checkpoint\.reentrant", 3, "a reentrant checkpoint"),
    (r"compile\.options\..*", 8, "options of Inductor's"),
    (r"compile\.marks\.\w+\.unbacked", 8, "sizes marked as unbacked"),
    (r"modes\.default_dtype\.float64", 8, "a default dtype of float64"),
    (r"modes\.compiled_autograd", 8, "compiled autograd"),
    (r"mesh", 3, "DTensors"),
    (r"mesh\.\w+\.(head_dim|length)", 8, "DTensors sharded along the length or head_dim"),
    (r"mesh\.uneven", 15, "shards that are uneven, or empty"),
    (r"mesh\.lengths", 8, "ranks that have lengths of their own"),
    (r"mesh\.lengths\.0", 15, "a rank that has none of the sequence"),
    (r"mesh\.plain_mask", 15, "a plain mask beside DTensors"),
)  # fmt: skip
"""Features (see `generators.model.features`) as regular expressions, with the weight and the
words. Each counts once."""

BSHD = (0, 2, 1, 3)


def ordinariness(program: Program) -> tuple[int, list[Uncommon]]:
    """The score of `program`, 0 for what models do, and the uncommon things that make it up, the
    heaviest first."""
    found = sorted(
        {*_extents(program), *_tensors(program), *_by_features(program)},
        key=lambda one: (-one.weight, one.what),
    )
    return sum(one.weight for one in found), found


def _extents(p: Program) -> Iterator[Uncommon]:
    shape = p.shape
    lengths = [(shape.batch, shape.q_len, shape.kv_len)]
    lengths += [(call.batch, call.q_len, call.kv_len) for call in p.calls]
    if not shape.q_heads or any(0 in call for call in lengths):
        yield Uncommon(30, "a dimension of size zero")
    dims = {shape.head_dim, shape.v_head_dim or shape.head_dim}
    if any(dim % 8 for dim in dims):
        yield Uncommon(15, "a head_dim that is no multiple of 8")
    elif any(dim & (dim - 1) for dim in dims):
        yield Uncommon(3, "a head_dim that is no power of two")
    if max(dims) > 256:
        yield Uncommon(8, "a head_dim above 256")
    if len(dims) > 1:
        yield Uncommon(3, "another head_dim for v")


def _tensors(p: Program) -> Iterator[Uncommon]:
    inputs = {"q": p.q, "k": p.k, "v": p.v}
    dtypes = {one.dtype for one in inputs.values()}
    if "float64" in dtypes:
        yield Uncommon(8, "float64")
    if len(dtypes) > 1:
        yield Uncommon(15, "q, k and v of different dtypes")
    for name, one in inputs.items():
        yield from _layout(name, one.layout, p.shape.q_heads)


def _layout(name: str, layout: Layout, heads: int) -> Iterator[Uncommon]:
    order: tuple[int, ...] = layout.order
    alone = heads == 1 and not layout.pad[1]
    if alone:  # where the one head stands says nothing
        order = tuple(dim for dim in order if dim != 1)
    if order not in ((0, 1, 2, 3), BSHD, (0, 2, 3)):
        last = order[-1] != 3
        yield Uncommon(
            15 if last else 8,
            f"{name} stored with {'head_dim not innermost' if last else 'dimensions swapped'}",
        )
    if {2, 3} & {*layout.expand}:
        yield Uncommon(15, f"{name} expanded along the length or head_dim")
    if {0, 1} & {*layout.expand} and name == "q":
        yield Uncommon(3, "q expanded along batch or heads")
    if max(layout.step) > 1:
        yield Uncommon(15, f"every n-th element of {name}")
    if layout.pad[3] or layout.start[3]:
        yield Uncommon(8, f"{name} cut out along head_dim")


def _by_features(p: Program) -> Iterator[Uncommon]:
    there = features(p)
    for pattern, weight, what in BY_FEATURE:
        if any(re.fullmatch(pattern, feature) for feature in there):
            yield Uncommon(weight, what)
