"""The same attention of q, k and v that are stored as models store them, and without groups.

What is stored as `[B, L, H, D]` and exchanged may come as `[B, L, H * D]` and be viewed so, and
keys may be repeated for each of a group: a dozen steps that seldom matter, and go together only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.graph.rewiring import last_writer, without
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.views import Expand, Flatten, Unflatten
from attnfuzz.generators.model.program import BSHD, Program


def arranged(program: Program, graph: Graph) -> Iterator[Program]:
    """The program stored so and without groups, then each of both. Not all are valid."""
    if graph.given == "merged":
        viewed = _stored(graph)
        inputs = {name: replace(getattr(program, name), layout=BSHD) for name in ("q", "k", "v")}
        stored = replace(program, kernel=viewed, **inputs)
        yield _without_groups(stored, viewed)
        yield stored
    if _repeated(graph) is not None:
        yield _without_groups(program, graph)


def _stored(graph: Graph) -> Graph:
    for i, step in reversed(list(enumerate(graph.body))):
        if isinstance(step, Unflatten) and step.dim == 2 and step.of in ("q", "k", "v"):
            of_argument = last_writer(graph.body, step.of, i) is None
            graph = without(graph, [i], step.to, step.of, i) if of_argument else graph
    return replace(graph, given="blhd")


def _without_groups(program: Program, graph: Graph) -> Program:
    while (span := _repeated(graph)) is not None:
        taken, old, new = span
        graph = without(graph, taken, old, new, taken[-1])
    shape = replace(program.shape, kv_heads=program.shape.q_heads)
    return replace(program, shape=shape, kernel=graph)


def _repeated(graph: Graph) -> tuple[list[int], str, str] | None:
    """The steps by which a value is repeated for each of a group, what they give, and of what."""
    for at, step in enumerate(graph.body):
        first = last_writer(graph.body, step.of, at) if isinstance(step, Expand) else None
        if not isinstance(step, Expand) or step.size != "G" or first is None:
            continue
        taken, now = [first, at], step.to
        for i, later in enumerate(graph.body[at + 1 :], at + 1):
            if later.reads()[:1] != (now,):
                continue
            taken.append(i)
            now = later.writes()[0]
            if isinstance(later, Flatten):
                return taken, now, graph.body[first].reads()[0]
    return None
