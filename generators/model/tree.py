"""The shape of a program's tree, read off its dataclasses: parts, defaults, paths, replacement.

The codec, the features and the simplification all go by what the dataclasses declare, so that a new
field or node needs no word in any of them.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

Sort = Literal["node", "choice", "number", "real", "numbers", "list", "options", "text"]
"""`node`: a dataclass, or one of several told apart by `kind`. `choice`: one of a closed list of
values. `numbers`: integers, always as many. `list`: a tuple of any length. `options`: text keys
with plain values. `text`: text, enumerations included."""

N = TypeVar("N", bound=Any)  # a dataclass

REQUIRED: Any = object()
"""Stands for the default of a field that has none."""

Path = tuple[str, ...]
"""Where a node is: `("mask", "left")`, `("calls[0]",)`."""

_SCALARS: dict[Any, Sort] = {int: "number", float: "real"}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One field of a dataclass. `choices` are in the order declared, the default first; `classes`
    are the dataclasses that a node may have, in the order declared; `least` is the smallest
    number allowed, `above` what a number must exceed, `most` the largest one allowed;
    `optional` parts may be None."""

    name: str
    sort: Sort
    default: Any
    optional: bool = False
    choices: tuple[Any, ...] = ()
    classes: tuple[type, ...] = ()
    least: int = 0
    above: float | None = None
    most: float | None = None


def class_of(node: Any) -> type:
    """The node's class."""
    return type(node)


@cache
def parts(cls: type) -> tuple[Part, ...]:
    """The parts of a dataclass in their order, its `kind` excepted."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _part(field.name, hints[field.name], _default(field))
        for field in fields(cls)
        if not _names_its_class(field)
    )


@cache
def kind_of(cls: type) -> str | None:
    """The `kind` that names a class in data, or None for a class that is never one of several."""
    return next((str(field.default) for field in fields(cls) if _names_its_class(field)), None)


def walk(node: Any) -> Iterator[Any]:
    """The node and all below it, each before what is below it."""
    yield node
    for _, _, child in _children(node):
        yield from walk(child)


def located(root: Any) -> Iterator[tuple[Path, tuple[type, ...], Any]]:
    """The path, the classes allowed there and the node, for the root and every node below it, those
    nearer to the root first."""
    level: list[tuple[Path, tuple[type, ...], Any]] = [((), (class_of(root),), root)]
    while level:
        yield from level
        level = [
            ((*path, step), each.classes, child)
            for path, _, node in level
            for step, each, child in _children(node)
        ]


def changed(node: N, **values: Any) -> N:
    """The node with those values, itself where it has them: a copy takes its time."""
    if all(getattr(node, name) == value for name, value in values.items()):
        return node
    return replace(node, **values)


def put(root: Any, path: Path, node: Any) -> Any:
    """The tree with `node` at `path`."""
    if not path:
        return node
    step, *rest = path
    name, _, position = step.partition("[")
    below = getattr(root, name)
    if not position:
        return replace(root, **{name: put(below, tuple(rest), node)})
    index = int(position.rstrip("]"))
    changed = put(below[index], tuple(rest), node)
    return replace(root, **{name: (*below[:index], changed, *below[index + 1 :])})


def _children(node: Any) -> Iterator[tuple[str, Part, Any]]:
    for each in _branches(class_of(node)):
        value = getattr(node, each.name)
        if each.sort == "list":
            for index, item in enumerate(value):
                yield f"{each.name}[{index}]", each, item
        elif value is not None:
            yield each.name, each, value


@cache
def _branches(cls: type) -> tuple[Part, ...]:
    """The parts of a dataclass that are nodes themselves, or lists of them."""
    return tuple(
        each for each in parts(cls) if each.sort == "node" or (each.sort == "list" and each.classes)
    )


def _names_its_class(field: Any) -> bool:
    return field.name == "kind" and field.default is not MISSING


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else REQUIRED


def _part(name: str, hint: Any, default: Any) -> Part:
    options, bounds = _alternatives(hint)
    optional = type(None) in options
    options = tuple(option for option in options if option is not type(None))
    first = options[0]
    about = {"name": name, "default": default, "optional": optional, **bounds}
    if is_dataclass(first):
        return Part(sort="node", classes=options, **about)
    if get_origin(first) is Literal or first is bool:
        values = (None,) * optional + (get_args(first) or (False, True))
        known = () if default is REQUIRED else (default,)
        rest = tuple(value for value in values if value not in known)
        return Part(sort="choice", choices=known + rest, **about)
    if get_origin(first) is tuple:
        return _tuple_part(get_args(first), about)
    if get_origin(first) is dict:
        return Part(sort="options", **about)
    return Part(sort=_SCALARS.get(first, "text"), **about)


def _tuple_part(items: tuple[Any, ...], about: dict[str, Any]) -> Part:
    members, bounds = _alternatives(items[0])
    item = members[0]
    about |= bounds
    if items[-1] is not Ellipsis:
        return Part(sort="numbers", **about)
    classes = tuple(each for each in members if isinstance(each, type) and is_dataclass(each))
    choices = get_args(item) if get_origin(item) is Literal else ()
    return Part(sort="list", classes=classes, choices=choices, **about)


def _alternatives(hint: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a hint allows, unions flattened and annotations taken off, and its bounds."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        options, bounds = _alternatives(inner)
        return options, bounds | _bounds(notes)
    if get_origin(hint) not in (Union, types.UnionType):
        return (hint,), {}
    options, bounds = (), {}
    for member in get_args(hint):
        inner_options, inner_bounds = _alternatives(member)
        options, bounds = options + inner_options, bounds | inner_bounds
    return options, bounds


def _bounds(notes: list[Any]) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    for rule in (rule for note in notes if isinstance(note, FieldInfo) for rule in note.metadata):
        if isinstance(rule, Ge):
            bounds["least"] = rule.ge
        elif isinstance(rule, Gt):
            bounds["above"] = rule.gt
        elif isinstance(rule, Le):
            bounds["most"] = rule.le
    return bounds
