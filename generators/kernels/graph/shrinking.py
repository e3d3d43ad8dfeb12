"""Smaller graphs than a given one: with fewer steps, with fewer results.

They need be neither valid nor simpler: `generators.shrink.candidates` sorts that out, after
`fit.fitted` has taken away what is of no use any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from attnfuzz.generators.kernels.graph.plainer import plainer
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.step import Step

MOST_PAIRS = 20
"""Of steps that pairs are left out of: a permutation and the one that undoes it."""


def smaller(graph: Graph) -> Iterator[Graph]:
    """Each result alone; stretches of steps left out, half of them first; each step left out, and
    what it gives read where it reads; pairs of steps left out."""
    if graph.decode is not None:
        yield from plainer(graph, graph.decode)
    steps, count = graph.body, len(graph.steps)
    if len(graph.returns) > 1:
        yield from (replace(graph, returns=(name,)) for name in graph.returns)
    size = count // 2
    while size >= 1:
        for start in range(0, count, size):
            yield graph.with_steps(steps[:start] + steps[start + size :])
        size //= 2
    for i, step in enumerate(steps):
        for new in dict.fromkeys(step.reads()):
            for old in step.writes():
                rest = _renamed(steps[i + 1 :], old, new)
                returns = tuple(new if name == old else name for name in graph.returns)
                yield graph.with_steps(steps[:i] + rest)
                yield replace(graph.with_steps(steps[:i] + rest), returns=returns)
    if count <= MOST_PAIRS:
        for i, j in combinations(range(count), 2):
            yield graph.with_steps(steps[:i] + steps[i + 1 : j] + steps[j + 1 :])
    yield from _ending_early(graph)


def _ending_early(graph: Graph) -> Iterator[Graph]:
    """With the result of an earlier step for the only one."""
    for i, step in enumerate(graph.body):
        for name in step.writes():
            for result in (graph.returns[0], "out"):
                ended = _writing(step, name, result)
                yield replace(graph.with_steps((*graph.body[:i], ended)), returns=(result,))


def _writing(step: Step, old: str, new: str) -> Step:
    """The step giving `new` in place of `old`."""
    changed: dict[str, Any] = {}
    for key in step.targets:
        value = getattr(step, key)
        if isinstance(value, tuple):
            changed[key] = tuple(new if name == old else name for name in value)
        elif value == old:
            changed[key] = new
    return replace(step, **changed)


def _renamed(steps: tuple[Step, ...], old: str, new: str) -> tuple[Step, ...]:
    """The steps reading `new` in place of `old`, until that is given anew."""
    renamed: list[Step] = []
    gone = False
    for step in steps:
        renamed.append(step if gone else step.reading({old: new}))
        gone = gone or bool({old, new} & set(step.writes()))
    return tuple(renamed)
