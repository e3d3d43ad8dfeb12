"""Looking into expression trees: their nodes, and the axes that they depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from attnfuzz.generators.model import indices, masks, scores
from attnfuzz.generators.model.indices import Axis, IntExpr, Table
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.scores import ScoreMod

Node = Any


@cache
def _children(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a node class that may hold nodes, by the names these have."""
    names = ("left", "right", "inner", "condition", "then", "otherwise", "mask", "index")
    return tuple(f.name for f in fields(kind) if f.name in names)


def nodes(tree: Mask | ScoreMod | IntExpr | None, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every node of `tree` with its path (".left.inner"), parents before their children."""
    if tree is None or not is_dataclass(tree):
        return
    stack: list[tuple[str, Node]] = [(path, tree)]
    while stack:
        where, node = stack.pop()
        yield where, node
        for name in reversed(_children(node.__class__)):
            stack.append((f"{where}.{name}", getattr(node, name)))


def has_learnable(score_mod: ScoreMod | None) -> bool:
    """Whether it captures a table that has a gradient."""
    return any(getattr(node, "requires_grad", False) for _, node in nodes(score_mod))


def uses_score(score_mod: ScoreMod | None) -> bool:
    """Whether it contains the score that it is given."""
    return any(isinstance(node, scores.Score) for _, node in nodes(score_mod))


def is_constant(node: Node) -> bool:
    """The expression is a Python number, as opposed to a tensor."""
    match node:
        case scores.FromIndex(index=index):
            return isinstance(index, indices.IntConst | indices.IntArgument)
        case _:
            numbers = indices.IntConst | indices.IntArgument | scores.FloatConst
            return isinstance(node, numbers)


def is_boolean(node: Node) -> bool:
    """The score modification is a bool tensor: some of torch's arithmetic does not take it."""
    match node:
        case scores.Truth(integer=integer):
            return not integer
        case scores.FloatBinary(op="+" | "*", left=left, right=right):
            return is_boolean(left) and is_boolean(right)
        case scores.Where(then=then, otherwise=otherwise):
            return is_boolean(then) and is_boolean(otherwise)
        case _:
            return False


def is_integral(node: Node) -> bool:
    """The score modification is an integer tensor."""
    match node:
        case scores.FromIndex():
            return True
        case scores.Truth(integer=integer):
            return integer
        case scores.FloatBinary(op="+" | "-" | "*" | "minimum" | "maximum", left=one, right=other):
            return is_integral(one) and is_integral(other)
        case scores.Where(then=one, otherwise=other):
            return is_integral(one) and is_integral(other)
        case scores.FloatCall(function="abs" | "neg" | "relu" | "square", inner=inner):
            return is_integral(inner)
        case _:
            return False


def table_axes(table: Table) -> frozenset[Axis]:
    """The axes along which a table varies: those whose extent in it is not 1."""
    return frozenset(axis for i, axis in enumerate(table.axes) if i not in table.unit)


_FIXED: dict[type, tuple[Axis, ...]] = {
    masks.AllTrue: ("q_idx",), masks.AllFalse: ("q_idx",), masks.Causal: ("q_idx", "kv_idx"),
    masks.SlidingWindow: ("q_idx", "kv_idx"), masks.PrefixLM: ("q_idx", "kv_idx"),
    masks.Documents: ("q_idx", "kv_idx"), masks.GlobalLocal: ("q_idx", "kv_idx"),
    masks.BlockMap: ("q_idx", "kv_idx"), masks.Tree: ("q_idx", "kv_idx"),
    masks.Natten: ("q_idx", "kv_idx"), masks.KeyPadding: ("kv_idx",),
    scores.Alibi: ("h", "q_idx", "kv_idx"), scores.RelativeBias: ("q_idx", "kv_idx"),
}  # fmt: skip


def _own_axes(node: Node) -> frozenset[Axis]:
    """The axes that a node mentions itself, its children left aside."""
    match node:
        case indices.Index(axis=axis) | masks.Single(axis=axis):
            return frozenset((axis,))
        case indices.IntLookup(table=table) | masks.TableMask(table=table):
            return table_axes(table)
        case scores.FloatLookup(table=table):
            return table_axes(table)
    axes = frozenset(_FIXED.get(type(node), ()))
    if getattr(node, "per_batch", False):
        axes |= {"b"}
    if getattr(node, "per_head", False):
        axes |= {"h"}
    return axes


def mask_axes(mask: Mask) -> frozenset[Axis]:
    """The axes that a mask's expression mentions: a superset of those its values vary along."""
    return frozenset(axis for _, node in nodes(mask) for axis in _own_axes(node))


def score_axes(score: ScoreMod) -> frozenset[Axis]:
    """The axes that a score modification mentions, its incoming score left aside."""
    return frozenset(axis for _, node in nodes(score) for axis in _own_axes(node))
