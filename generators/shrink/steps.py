"""The smaller changes that may make a program simpler: calls, extents, trees, inputs, fields.

Each function gives changed programs. They need be neither valid nor simpler:
`generators.shrink.candidates` sorts that out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.indices import Index, IntConst, Table
from attnfuzz.generators.model.masks import AllTrue, Causal
from attnfuzz.generators.model.program import Call, Input, Layout, Program, Shape
from attnfuzz.generators.model.scores import FloatConst, Score
from attnfuzz.generators.model.tree import REQUIRED, Part, class_of, located, parts, put
from attnfuzz.generators.shrink.complexity import inversions, order

LEAVES = (
    AllTrue(), Causal(), Score(), FloatConst(value=0.0), Index(axis="q_idx"), IntConst(value=1),
)  # fmt: skip
"""The simplest expressions, tried in place of every other."""

_TYPICAL = {
    "q_len": (16, 2, 0, 1, 32, 17, 144, 129),
    "kv_len": (16, 2, 0, 1, 32, 17, 144, 129),
    "head_dim": (16, 8, 32, 24, 4, 2, 1, 17, 144),
    "v_head_dim": (16, 8, 32, 24, 4, 2, 1, 17, 144),
}
"""The plainest member of each class of extents that `generators.model.features` tells apart."""


PLACES = frozenset(("dim", "dims", "first", "last"))
"""Which dimension something is about: a smaller number is another program, not a simpler one."""


def calls(p: Program) -> Iterator[Program]:
    """Fewer calls: one alone in the first one's place, either half, each left out; then calls like
    the first."""
    for call in p.calls:
        yield _first(p, call, ())
    half = (len(p.calls) + 1) // 2
    if len(p.calls) > 1:
        yield replace(p, calls=p.calls[:half])
        yield replace(p, calls=p.calls[half:])
    if p.calls:
        yield _first(p, p.calls[0], p.calls[1:])
    for i in range(len(p.calls)):
        yield replace(p, calls=(*p.calls[:i], *p.calls[i + 1 :]))
    for i, call in enumerate(p.calls):
        for name in ("batch", "q_len", "kv_len"):
            like = replace(call, **{name: getattr(p.shape, name)})
            yield put(p, (f"calls[{i}]",), like)


def _first(p: Program, call: Call, others: tuple[Call, ...]) -> Program:
    shape = replace(p.shape, batch=call.batch, q_len=call.q_len, kv_len=call.kv_len)
    return replace(p, shape=shape, calls=others)


def shapes(p: Program) -> Iterator[Program]:
    """Extents that have to move together: equal lengths, in all calls, and grouped heads; and
    lengths with the blocks that they are made of."""
    shape, plain = p.shape, Shape()
    short = _with_shape(p, q_len=plain.q_len, kv_len=plain.kv_len)
    yield short
    # What needs a whole block: of small ones few elements are enough.
    yield replace(short, kernel=plugin_of(p).in_blocks(p.kernel, plain.q_len))
    yield _with_shape(p, q_heads=1, kv_heads=1)
    yield _with_shape(p, batch=1, q_heads=1, kv_heads=1)
    yield _with_shape(p, head_dim=plain.head_dim, v_head_dim=None)
    yield _with_shape(p, kv_len=shape.q_len)
    yield _with_shape(p, q_len=shape.kv_len)
    for length in _smaller("q_len", shape.q_len, plain.q_len, 0):
        if shape.q_len == shape.kv_len:
            yield _with_shape(p, q_len=length, kv_len=length)
        if p.calls:
            yield _all_lengths(p, shape.q_len, length)
    yield from _heads(p)


def _with_shape(p: Program, **extents: Any) -> Program:
    return replace(p, shape=replace(p.shape, **extents))


def _all_lengths(p: Program, old: int, new: int) -> Program:
    def moved(node: Any) -> Any:
        lengths = {name: getattr(node, name) for name in ("q_len", "kv_len")}
        return replace(node, **{name: new for name, value in lengths.items() if value == old})

    return replace(p, shape=moved(p.shape), calls=tuple(moved(call) for call in p.calls))


def _heads(p: Program) -> Iterator[Program]:
    """Without groups, then fewer heads in each group, then fewer groups."""
    heads, kv_heads = p.shape.q_heads, p.shape.kv_heads
    group = heads // kv_heads if kv_heads else 1
    yield _grouped(p, 1, kv_heads)
    yield _grouped(p, group, 1)
    for smaller in _smaller("heads", group, 1, 1):
        yield _grouped(p, smaller, kv_heads)
    for smaller in _smaller("heads", kv_heads, 1, 1):
        yield _grouped(p, group, smaller)


def _grouped(p: Program, group: int, kv_heads: int) -> Program:
    kernel = p.kernel
    if group == 1:
        kernel = plugin_of(p).without_groups(kernel)
    shape = replace(p.shape, q_heads=group * kv_heads, kv_heads=kv_heads)
    return replace(p, kernel=kernel, shape=shape)


def expressions(p: Program) -> Iterator[Program]:
    """Each node of the mask and the score modification replaced by what is below it, then by the
    simplest leaves; the largest first."""
    for path, classes, node in located(p):
        if path[:1] not in (("mask",), ("score_mod",)):
            continue
        for below, _, child in located(node):
            if len(below) in (1, 2) and class_of(child) in classes:
                yield put(p, path, child)
        for leaf in LEAVES:
            if class_of(leaf) in classes:
                yield put(p, path, leaf)
        if isinstance(node, Table):
            yield from (put(p, path, table) for table in _tables(node))


def _tables(table: Table) -> Iterator[Table]:
    """With one axis less, along a length instead, and as another dtype with contents to suit."""
    for i in range(len(table.axes)):
        unit = tuple(at - (at > i) for at in table.unit if at != i)
        yield replace(table, axes=table.axes[:i] + table.axes[i + 1 :], unit=unit)
    for i in range(len(table.axes)):
        for axis in ("q_idx", "kv_idx"):
            yield replace(table, axes=(*table.axes[:i], axis, *table.axes[i + 1 :]))
    for part in parts(Table):
        if part.name == "dtype":
            for dtype in order(Table, part):
                for init in dict.fromkeys([table.init, "uniform", "normal", "coin"]):
                    yield replace(table, dtype=dtype, init=init)


def inputs(p: Program) -> Iterator[Program]:
    """q, k and v alike, and each alone: their dtypes, values, layouts. Without autocast they are of
    the dtype that it casts to."""
    if p.autocast is not None:
        yield _with_inputs(replace(p, autocast=None), ("q", "k", "v"), dtype=p.autocast)
    for group in (("q", "k", "v"), ("k", "v"), ("q",), ("k",), ("v",)):
        yield _with_inputs(p, group)
        yield _with_inputs(p, group, values="normal")
        yield _with_inputs(p, group, layout=Layout())
        for dtype in ("float32", "bfloat16", "float16"):
            yield _with_inputs(p, group, dtype=dtype)
        yield _with_inputs(p, group, dtype=p.v.dtype, values=p.v.values)
    for part in parts(Layout):
        same = {name: _reset(getattr(p, name).layout, part) for name in ("q", "k", "v")}
        changed: dict[str, Any] = {
            name: replace(getattr(p, name), layout=layout) for name, layout in same.items()
        }
        yield replace(p, **changed)


def _with_inputs(p: Program, names: tuple[str, ...], **what: Any) -> Program:
    changed: dict[str, Any] = {
        name: replace(getattr(p, name), **what) if what else Input() for name in names
    }
    return replace(p, **changed)


def _reset(node: Any, part: Part) -> Any:
    return replace(node, **{part.name: part.default})


def fields(p: Program) -> Iterator[Program]:
    """Every field of every node that is no number: back to its default, or part of the way."""
    for path, _, node in located(p):
        for part in parts(class_of(node)):
            for simpler in _simpler(class_of(node), part, getattr(node, part.name)):
                yield put(p, path, replace(node, **{part.name: simpler}))


def _simpler(cls: type, part: Part, value: Any) -> Iterator[Any]:
    if part.default is not REQUIRED and value != part.default:
        yield part.default
    if part.sort == "choice":
        ladder = order(cls, part)
        yield from ladder[: ladder.index(value)]
    elif part.sort == "options":
        for key in value:
            yield {name: value[name] for name in value if name != key}
    elif part.sort == "real" and value is not None:
        for number in (1.0, 0.0, 2.0, float(round(value)), round(value, 1), round(value, 3)):
            low = part.above is not None and number <= part.above
            if not low and (part.most is None or number <= part.most):
                yield number
    elif part.sort == "list" and part.name not in PLACES:
        yield from ((item,) for item in value)
        yield from (value[:i] + value[i + 1 :] for i in range(len(value)))
    elif part.name == "order":
        swaps = (_swapped(value, i, j) for i in range(4) for j in range(i + 1, 4))
        yield from (dims for dims in swaps if inversions(dims) < inversions(value))


def _swapped(dims: tuple[int, ...], i: int, j: int) -> tuple[int, ...]:
    swapped = list(dims)
    swapped[i], swapped[j] = swapped[j], swapped[i]
    return tuple(swapped)


def numbers(p: Program) -> Iterator[Program]:
    """Every number of every node, alone: its default, the typical ones, and down in shrinking
    strides."""
    for path, _, node in located(p):
        for part in parts(class_of(node)):
            for smaller in _fewer(part, getattr(node, part.name)):
                yield put(p, path, replace(node, **{part.name: smaller}))


def _fewer(part: Part, value: Any) -> Iterator[Any]:
    if part.name in PLACES:
        return
    if part.sort == "number" and value is not None and part.name != "seed":
        yield from _smaller(part.name, value, part.default, part.least)
    elif part.sort == "numbers" and part.name != "order":
        for i, item in enumerate(value):
            for smaller in _smaller(part.name, item, part.default[i], part.least):
                yield (*value[:i], smaller, *value[i + 1 :])


def _smaller(name: str, value: int, default: Any, least: int) -> list[int]:
    """Numbers to try for `value`, each once: the boldest first."""
    sign = -1 if value < 0 else 1
    size = abs(value)
    strides = [size - size // part for part in (2, 4, 8, 16) if size >= 2 * part]
    bold = [default] if isinstance(default, int) else []
    tries = [*bold, *_TYPICAL.get(name, (0, 1, 2))]
    if name in _TYPICAL:
        tries += [down - down % 16 for down in strides if down > 16]
    tries += [sign * down for down in strides] + [size] * (value < 0) + [sign * (size - 1)]
    known = dict.fromkeys(tries)
    return [number for number in known if number >= least and number != value]
