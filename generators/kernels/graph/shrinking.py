"""Smaller graphs than a given one: with fewer steps, with fewer results.

They need be neither valid nor simpler: `generators.shrink.candidates` sorts that out, after
`fit.fitted` has taken away what is of no use any more. A graph of 25 steps has about 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise

from attnfuzz.generators.kernels.graph.fusing import fused
from attnfuzz.generators.kernels.graph.plainer import plainer
from attnfuzz.generators.kernels.graph.rewiring import (
    Given,
    at_defaults,
    history,
    last_writer,
    reading,
    renamed,
    without,
    writing,
)
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.attention import Attend, Softmax
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.steps.views import Permute
from attnfuzz.generators.kernels.graph.types import arguments, scopes, scopes_of_calls
from attnfuzz.generators.kernels.graph.values import Scope, Value
from attnfuzz.generators.kernels.handwritten.spec import Handwritten
from attnfuzz.generators.kernels.sdpa.spec import MaskForm, Sdpa
from attnfuzz.generators.model.program import Program


def smaller(program: Program, graph: Graph) -> Iterator[Graph | Sdpa | Handwritten]:
    """The boldest first: one attention alone, each result alone, SDPA for what is written by hand,
    stretches left out, what changes no shape, an end with an earlier step; then steps left out one
    by one, and several that only go together."""
    yield from _attention_alone(graph)
    if graph.decode is not None:
        yield from plainer(graph, graph.decode)
    _, extents = next(scopes_of_calls(program, graph))
    before = list(scopes(graph, arguments(program, graph, extents)))
    plain = arguments(program, replace(graph, given="bhld"), extents)
    yield from chain(
        _results(graph), fused(graph, before), _stretches(graph),
        _as_they_are(graph, before, plain), _round_trips(graph, before), _ending_early(graph),
        _bypassed(graph), _of_one(graph, before), _permutations(graph), _of_both_sides(graph),
    )  # fmt: skip


def _attention_alone(graph: Graph) -> Iterator[Sdpa | Handwritten]:
    """The SDPA that is in it, or attention by hand, as a kernel of q, k, v and the mask."""
    if any(isinstance(step, Softmax) for step in graph.body):
        yield Handwritten()
    forms: dict[str, MaskForm] = {"bool": "bool", "zero_one": "bool"}
    for step in graph.body:
        if isinstance(step, Attend):
            form = "is_causal" if step.causal else forms.get(graph.mask.form, "float")
            plain = Sdpa(scale=step.scale, mask_form=form, mask_fill=graph.mask.fill)
            yield from (plain, replace(plain, mask_bias=True))
            if step.mask is not None and graph.mask.dtype == "float32":
                yield replace(plain, mask_form="float", mask_dtype="float32")


def _results(graph: Graph) -> Iterator[Graph]:
    if len(graph.returns) > 1:
        yield from (replace(graph, returns=(name,)) for name in graph.returns)


def _ending_early(graph: Graph) -> Iterator[Graph]:
    """With the result of an earlier step for the only one."""
    for i, step in enumerate(graph.body):
        for name in step.writes():
            ended = writing(step, name, "out")
            yield replace(graph.with_steps((*graph.body[:i], ended)), returns=("out",))


def _stretches(graph: Graph) -> Iterator[Graph]:
    """Stretches left out, half of the steps first."""
    size = len(graph.steps) // 2
    while size >= 1:
        for start in range(0, len(graph.steps), size):
            yield graph.with_steps(graph.body[:start] + graph.body[start + size :])
        size //= 2


def _as_they_are(graph: Graph, before: list[Scope], plain: Scope) -> Iterator[Graph]:
    """q, k, v and those like them handed over as `[B, H, L, D]`, without the steps that bring them
    there."""
    if graph.given == "bhld":
        return
    steps: list[Step | None] = list(graph.body)
    for name in ("q", "k", "v", *(other.name for other in graph.others)):
        _arranged(graph, name, before, plain.values[name], steps)
    kept = (step for step in steps if step is not None)
    yield replace(graph.with_steps(kept), given="bhld")


def _arranged(
    graph: Graph, name: str, before: list[Scope], wanted: Value, steps: list[Step | None]
) -> None:
    """Takes the steps from those of `name` alone to a value of the wanted shape out of `steps`."""
    now, taken = name, list[int]()
    for i, step in enumerate(graph.body):
        if now not in step.reads():
            continue
        if step.reads() != (now,) or len(step.writes()) != 1:
            return
        now, taken = step.writes()[0], [*taken, i]
        if before[i + 1].values[now].shape == wanted.shape:
            for at in taken:
                steps[at] = None
            _read(steps, i + 1, now, name)
            return


def _read(steps: list[Step | None], start: int, old: str, new: str) -> None:
    """Has the steps from `start` on read `new` in place of `old`, until that is given anew."""
    for at, step in enumerate(steps[start:], start):
        if step is not None and old != new:
            steps[at] = reading(step, old, new)
            if {old, new} & set(step.writes()):
                return


def _round_trips(graph: Graph, before: list[Scope]) -> Iterator[Graph]:
    """Steps, one working on the other's result, after which there is a value of the type that was
    there before them: the nearest and the farthest such value in place of theirs."""
    for end, step in enumerate(graph.body):
        for name in step.writes():
            kind = _kind(before[end + 1].values[name])
            found: list[tuple[str, list[int]]] = []
            for source, taken in _back(graph, end):
                if len(taken) > 1 and _kind(before[taken[-1]].values[source]) == kind:
                    found.append((source, taken))
            for source, taken in [*found[:1], *found[1:][-1:]]:
                yield without(graph, taken, name, source, end)


def _back(graph: Graph, end: int) -> Iterator[tuple[str, list[int]]]:
    """What each step that led to step `end` by first operands started with, and these steps."""
    taken: list[int] = []
    first = Given(graph.body[end].writes()[0], end)
    for value, source in pairwise(history(graph.body, first)):
        if value.by is not None:
            taken = [*taken, value.by]
        yield source.name, taken


def _kind(value: Value) -> tuple[object, ...]:
    return value.shape, value.dtype


def _bypassed(graph: Graph) -> Iterator[Graph]:
    """Each step left out, and what it reads read in place of what it gives."""
    for i, step in enumerate(graph.body):
        for new in dict.fromkeys(step.reads()):
            for old in step.writes():
                yield without(graph, [i], old, new, i)


def _of_one(graph: Graph, before: list[Scope]) -> Iterator[Graph]:
    """One of two steps of a sort for both, and one of two arguments."""
    for j, step in enumerate(graph.body):
        for i in range(j):
            if type(graph.body[i]) is not type(step):
                continue
            for old, new in zip(step.writes(), graph.body[i].writes(), strict=False):
                there = last_writer(graph.body, new, j) == i
                alike = _kind(before[j + 1].values[old]) == _kind(before[i + 1].values[new])
                if there and alike and old != new:
                    yield without(graph, [j], old, new, j)
                    yield without(graph, [i], new, old, j)
    for other in graph.others:
        yield graph.with_steps(renamed(graph.body, other.name, other.like))


def _permutations(graph: Graph) -> Iterator[Graph]:
    """Two permutations, one of the other's result, as one."""
    for j, step in enumerate(graph.body):
        i = last_writer(graph.body, step.reads()[0], j) if isinstance(step, Permute) else None
        first = graph.body[i] if i is not None else None
        if isinstance(step, Permute) and isinstance(first, Permute):
            dims = tuple(first.dims[dim] for dim in step.dims)
            both = Permute(of=first.of, to=step.to, dims=dims)
            between = graph.body[(i or 0) + 1 : j]
            yield graph.with_steps((*graph.body[:i], *between, both, *graph.body[j + 1 :]))


def _of_both_sides(graph: Graph) -> Iterator[Graph]:
    """Of a step that reads several values, the steps that gave them left out together; the same
    with the step's own fields back at their defaults, as an equation that fits what is left."""
    for j, step in enumerate(graph.body):
        if len(step.reads()) < 2:
            continue
        taken: dict[int, tuple[str, str]] = {}
        for name in dict.fromkeys(step.reads()):
            i = last_writer(graph.body, name, j)
            if i is not None and graph.body[i].reads():
                taken[i] = name, graph.body[i].reads()[0]
        for old, new in taken.values():
            step = reading(step, old, new)
        kept = [each for i, each in enumerate(graph.body[:j]) if i not in taken]
        for changed in dict.fromkeys((step, at_defaults(step))):
            yield graph.with_steps((*kept, changed, *graph.body[j + 1 :]))
