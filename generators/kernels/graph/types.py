"""The types of all values of a graph, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attnfuzz.generators.kernels.graph import decoding
from attnfuzz.generators.kernels.graph.causality import Flow, lengths
from attnfuzz.generators.kernels.graph.extents import sizes
from attnfuzz.generators.kernels.graph.spec import Graph, MaskForm
from attnfuzz.generators.kernels.graph.values import FLOATS, Extent, Scope, Unfit, Value
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.sizes import Size, product


def scopes_of_calls(program: Program, graph: Graph) -> Iterator[tuple[str, dict[str, Size]]]:
    """The extents of every call, with the key of the program that they are at."""
    shape = program.shape
    if graph.decode is not None:
        for extents in decoding.every_scope(program, graph.decode):
            yield "kernel.decode", extents
        return
    yield "shape", sizes(program, shape.batch, shape.q_len, shape.kv_len)
    for i, call in enumerate(program.calls):
        yield f"calls[{i}]", sizes(program, call.batch, call.q_len, call.kv_len)


def arguments(program: Program, graph: Graph, extents: Mapping[str, Size]) -> Scope:
    """The scope before the first step: q, k, v, the mask and the further arguments."""
    scope = Scope(extents, decode=graph.decode)
    trained = program.training.wrt if program.training is not None else ()
    values: dict[str, Value] = {}
    for name, shape in _shapes(scope, graph).items():
        of = frozenset((name,)) if name in trained else frozenset[str]()
        values[name] = Value(handed(shape, graph.given), program.q.dtype, of=of)
    for other in graph.others:
        like = values[other.like]
        of = frozenset((other.name,)) if program.training is not None else frozenset[str]()
        values[other.name] = Value(like.shape, like.dtype, of=of)
    if program.mask is not None:
        values["mask"] = mask_value(program, graph.mask, scope)
    for parameter in graph.parameters:
        of = frozenset((parameter.name,)) if program.training is not None else frozenset[str]()
        shape = _of(scope, parameter.rows) + _of(scope, parameter.columns)
        values[parameter.name] = Value(shape, program.q.dtype, True, of)
    if graph.decode is not None:
        for name, shape in decoding.cache_shapes(scope, graph.decode).items():
            values[name] = Value(shape, program.q.dtype)
    return scope.with_values(values)


def _shapes(scope: Scope, graph: Graph) -> dict[str, tuple[Size, ...]]:
    length: Extent = "Lkv" if graph.decode is None else "Lq"
    names: dict[str, tuple[Extent, ...]] = {
        "q": ("B", "Hq", "Lq", "D"), "k": ("B", "Hkv", length, "D"), "v": ("B", "Hkv", length, "Dv")
    }  # fmt: skip
    return {name: tuple(scope.size(one) for one in extents) for name, extents in names.items()}


def _of(scope: Scope, extents: tuple[Extent, ...]) -> tuple[Size, ...]:
    return (scope.sizes_of(extents),) if extents else ()


def handed(shape: tuple[Size, ...], given: str) -> tuple[Size, ...]:
    """The shape in which a tensor `[B, H, L, D]` is handed over."""
    batch, heads, length, dim = shape
    return {
        "bhld": shape,
        "blhd": (batch, length, heads, dim),
        "merged": (batch, length, product((heads, dim))),
        "flat": (product((batch, heads)), length, dim),
    }[given]


def mask_value(program: Program, form: MaskForm, scope: Scope) -> Value:
    """The type of the argument `mask`."""
    assert program.mask is not None
    axes = mask_axes(program.mask)
    names: dict[str, Extent] = {"b": "B", "h": "Hq", "q_idx": "Lq", "kv_idx": "Lkv"}
    shape = tuple(scope.size(names[a]) if a in axes else 1 for a in names)
    if form.padding:
        shape = (shape[0], shape[3])
    dtype = "bool" if form.form == "bool" else "float32"
    dtype = program.q.dtype if dtype != "bool" and form.dtype == "q" else dtype
    return Value(shape[-rank(program, form) :], dtype)


def rank(program: Program, form: MaskForm) -> int:
    """How many dimensions the mask has."""
    assert program.mask is not None
    if form.padding:
        return 2
    return 4 if mask_axes(program.mask) & {"b", "h"} else form.rank


def scopes(graph: Graph, scope: Scope) -> Iterator[Scope]:
    """The scope before each step, and after the last. Raises Unfit, its key that of a step."""
    yield scope
    for step in graph.steps:
        scope = scope.with_values(dict(zip(step.writes(), step.values(scope), strict=True)))
        yield scope


def problems(program: Program, graph: Graph) -> Iterator[Problem]:
    """What is wrong with the graph, first for the program, then for each call."""
    for i, each in enumerate(graph.parameters):
        if each.values == "weight" and not (each.rows or each.columns):
            yield Problem(f"kernel.parameters[{i}].values", "expected another of a 0-d tensor")
            return
    names = graph.further
    for name in names:
        if name in ("q", "k", "v", "mask") or names.count(name) > 1:
            yield Problem("kernel.parameters", f"expected a name of its own, got {name}")
            return
    axes = mask_axes(program.mask) if program.mask is not None else {"b", "kv_idx"}
    if graph.mask.padding and axes != {"b", "kv_idx"}:
        yield Problem("kernel.mask.padding", "expected false: the mask is not one of b and kv_idx")
        return
    if not graph.steps or not graph.returns or len(set(graph.returns)) != len(graph.returns):
        yield Problem("kernel.returns", "expected distinct names of what steps give")
        return
    if graph.decode is not None:
        problem = next(decoding.problems(program, graph), None)
        if problem is not None:
            yield problem
            return
    for key, extents in scopes_of_calls(program, graph):
        if not all(extents[name] for name in ("Lq", "Lkv", "B")):
            yield Problem(f"{key}.q_len", "expected lengths above 0 for a graph")
            return
        problem = next(_of_call(program, graph, extents), None)
        if problem is not None:
            yield problem
            return
    problem = next(_as_written(program, graph), None)
    if problem is not None:
        yield problem
        return
    yield from _unused(program, graph)
    if graph.decode is not None:
        yield from _another_meaning(program, graph)


def _as_written(program: Program, graph: Graph) -> Iterator[Problem]:
    """That a step asks for an extent as a number where calls differ in it: all calls fit, but the
    one function that is written for them has a name there."""
    every = [extents for _, extents in scopes_of_calls(program, graph)]
    named: list[Mapping[str, Size]] = []
    if graph.decode is not None:
        named.append(decoding.written_sizes(program, graph.decode))
        named.append(decoding.names_of_sizes(program, graph.decode))
    else:
        shape = program.shape
        first = (("B", shape.batch), ("Lq", shape.q_len), ("Lkv", shape.kv_len))
        batch, q_len, kv_len = (
            size if all(extents[name] == size for extents in every) else name
            for name, size in first
        )
        named.append(sizes(program, batch, q_len, kv_len))
    for extents in named:
        at = -1
        try:
            for _ in scopes(graph, arguments(program, graph, extents)):
                at += 1
        except Unfit as unfit:
            yield Problem(f"kernel.steps[{at}].{unfit.key}", unfit.sentence)
            return


def _another_meaning(program: Program, graph: Graph) -> Iterator[Problem]:
    """That the graph, called for parts of a sequence, does not mean one pass over it."""
    assert graph.decode is not None
    before = arguments(program, graph, decoding.names_of_sizes(program, graph.decode))
    flow, every = Flow(before), list(scopes(graph, before))
    for at, step in enumerate(graph.body):
        try:
            flow.step(step, every[at], every[at + 1])
        except Unfit as unfit:
            yield Problem(f"kernel.steps[{at}].{unfit.key}", unfit.sentence)
            return
    out, *others = graph.returns
    if flow.roles[out] != "row" or lengths(every[-1].values[out]) != ("Lq",):
        yield Problem("kernel.returns", f"expected {out} to belong to the tokens of the part")
    elif tuple(others) != decoding.results(graph.body, graph.decode):
        yield Problem("kernel.returns", "expected one result, and the caches that are made anew")


def _of_call(program: Program, graph: Graph, extents: Mapping[str, Size]) -> Iterator[Problem]:
    before = arguments(program, graph, extents)
    at = -1
    try:
        for scope in scopes(graph, before):
            at += 1
            if any(isinstance(n, int) and n < 0 for v in scope.values.values() for n in v.shape):
                raise Unfit("to", "expected extents of at least 0")
    except Unfit as unfit:
        yield Problem(f"kernel.steps[{at}].{unfit.key}", unfit.sentence)
        return
    written = {name for step in graph.steps for name in step.writes()}
    for name in graph.returns:
        if name not in written or name in before.values:
            yield Problem("kernel.returns", f"expected what steps alone give, got {name}")
            return
        value = scope.values[name]
        if value.dtype not in FLOATS:
            yield Problem("kernel.returns", f"expected floating-point numbers, got {name}")
            return
        if name == "out" and value.dtype != program.q.dtype:
            yield Problem("kernel.returns", f"expected out of q's dtype, got {value.dtype}")
            return
        if program.training is not None and not value.of:
            yield Problem("training.wrt", f"expected more: {name} depends on none of them")
            return


def _unused(program: Program, graph: Graph) -> Iterator[Problem]:
    """Every step, argument and gradient has to be of use: what is not would be left over."""
    steps, needed = live(graph)
    for i, used in enumerate(steps):
        if not used:
            yield Problem(f"kernel.steps[{i}]", "expected a step whose result is used")
            return
    for name in graph.further:
        if name not in needed:
            yield Problem("kernel.parameters", f"expected {name} to be used")
            return
    if program.mask is not None and "mask" not in needed:
        yield Problem("mask", "expected none: the graph does not use it")
    if program.training is None:
        return
    reached = frozenset[str]().union(*trained(program, graph).values())
    for name in program.training.wrt:
        if name not in reached:
            yield Problem("training.wrt", f"expected no {name}: nothing that is returned needs it")
            return
    for name in graph.further:
        if name not in reached:
            yield Problem("kernel.parameters", f"expected {name} to have a gradient")
            return


def trained(program: Program, graph: Graph) -> dict[str, frozenset[str]]:
    """For each result the arguments that its gradient reaches. Raises Unfit or KeyError where the
    graph does not fit."""
    _, extents = next(scopes_of_calls(program, graph))
    *_, last = scopes(graph, arguments(program, graph, extents))
    return {name: last.values[name].of for name in graph.returns}


def live(graph: Graph) -> tuple[list[bool], frozenset[str]]:
    """Whether each step is of use for what is returned, and the names needed before the first."""
    needed = set(graph.returns)
    used: list[bool] = []
    for step in reversed(graph.steps):
        writes = set(step.writes())
        of_use = bool(writes & needed)
        used.append(of_use)
        if of_use:
            needed = (needed - writes) | set(step.reads())
    return used[::-1], frozenset(needed)
