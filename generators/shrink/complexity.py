"""How complex a program is: the well-founded order that every simplification goes down.

First the features, for they are what a person has to look at and what a bucket is known by; then
the number of nodes; then the sum of ranks, where a choice's rank is its place in the list of
choices and a number's is its distance from zero, both 0 for the default.
"""

from __future__ import annotations

from typing import Any

from attnfuzz.generators.methods.base import DEGREES
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.indices import Index, Table
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.model.tree import REQUIRED, Part, class_of, parts, walk

_ORDERS: dict[tuple[type, str], tuple[Any, ...]] = {
    (Compile, "backend"): ("eager", "aot_eager", "inductor"),
    (Index, "axis"): ("q_idx", "kv_idx", "h", "b"),
    (Table, "dtype"): ("int64", "bool", "float32", "int32", "bfloat16", "float16", "float64"),
}
"""Where the simplest choice is not the default, or the order declared is not the order wanted."""


_WEIGHTS = {
    "shape.q!=kv": 3,
    "shape.batch.0": 2,
    "shape.heads.0": 2,
    "shape.q_len.0": 2,
    "shape.kv_len.0": 2,
    "shape.q_len.lt16": 2,
    "shape.kv_len.lt16": 2,
    "table.axes0": 2,
    **{f"mesh.degree.gt{few}": 8 for few in DEGREES},
    "mesh.data": 20,
    "mesh.tensor": 21,  # which of two dimensions it is seldom matters: the batch's is plainer
    "mesh.uneven": 2,
    "kernel.graph.given.merged": 4,
    "autocast.bfloat16": 3,  # q, k and v of a dtype are simpler than one of them that is cast to it
    "autocast.float16": 3,
}
"""Features that hold of few programs: a trigger without them is known again more often, so Lq = Lkv
= 17 is preferred to Lq = 2, Lkv = 16 wherever it fails too. Fewer ranks are simpler whatever the
extents that they share, four on one dimension of the mesh simpler than two on each of two, and a
head for each rank simpler than parts of a length that differ. `[B, L, H, D]`, a permuted q, k and
v, is simpler than `[B, L, H * D]`: what is known of permuted heads is known of that."""


def complexity(program: Program) -> tuple[int, int, int]:
    """Weight of the features, nodes and ranks: smaller is simpler, and every descent ends.
    `Program()` has the smallest."""
    return _weight(program), _nodes(program), _ranks(program)


def is_simpler(program: Program, limit: tuple[int, int, int]) -> bool:
    """Whether the complexity is below `limit`; what does not decide is not counted."""
    weight, nodes, ranks = limit
    if (mine := _weight(program)) != weight:
        return mine < weight
    if (mine := _nodes(program)) != nodes:
        return mine < nodes
    return _ranks(program) < ranks


def _weight(program: Program) -> int:
    return sum(_WEIGHTS.get(feature, 1) for feature in features(program))


def _nodes(program: Program) -> int:
    return sum(1 for _ in walk(program))


def order(cls: type, each: Part) -> tuple[Any, ...]:
    """A choice's values, simplest first."""
    return _ORDERS.get((cls, each.name), each.choices)


def _ranks(node: Any) -> int:
    cls = class_of(node)
    return sum(_rank(cls, each, getattr(node, each.name)) for each in parts(cls))


def _rank(cls: type, each: Part, value: Any) -> int:
    if each.sort == "choice":
        return order(cls, each).index(value)
    if each.sort == "node":
        return 0 if value is None else each.classes.index(class_of(value)) + _ranks(value)
    if each.classes:
        return sum(_ranks(item) for item in value)
    if each.default is not REQUIRED and value == each.default:
        return 0
    return 1 + _extent(each, value)


def _extent(each: Part, value: Any) -> int:
    """How far from nothing a value is that is not the default."""
    if each.sort == "number":
        return _distance(value)
    if each.sort == "real":
        return plainness(value)
    if each.name == "order":
        return inversions(value)
    if each.sort == "numbers":
        pairs = zip(value, each.default, strict=True)
        return sum(0 if item == default else 1 + _distance(item) for item, default in pairs)
    if each.sort == "list":
        return sum(8 + _place(each, item) for item in value)
    if each.sort == "options":
        return sum(1 + len(str(item)) for item in value.values())
    return len(value)


def _place(each: Part, item: Any) -> int:
    if each.choices:
        return each.choices.index(item)
    return len(item) if isinstance(item, str) else int(item)


def _distance(number: int) -> int:
    return 2 * abs(number) + (number < 0)


def inversions(dims: tuple[int, ...]) -> int:
    """How many pairs stand in the wrong order: 0 for (0, 1, 2, 3)."""
    return sum(dims[i] > dims[j] for i in range(len(dims)) for j in range(i + 1, len(dims)))


def plainness(value: float) -> int:
    """0 for 1, 1 for 0, then by how long the number is to read."""
    if value in (1, 0):
        return int(value == 0)
    return len(f"{value:g}") + (4 if value != int(value) else 0) + len(repr(float(value)))
