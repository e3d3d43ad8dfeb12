"""Programs that decode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.plainer import alone
from attnfuzz.generators.kernels.graph.steps.state import Store
from attnfuzz.generators.kernels.specs import Graph
from attnfuzz.generators.model.program import Program


def decoding(decode: Decode, masked: bool = False, **parts: Any) -> Program:
    """SDPA over caches of that kind."""
    seen, with_mask = alone(decode)
    return Program(kernel=with_mask if masked else seen, **parts)


def graph_of(program: Program) -> Graph:
    """Its graph."""
    assert isinstance(program.kernel, Graph)
    return program.kernel


def stored_as(program: Program, form: Any, of: tuple[str, ...] = ("k", "v")) -> Program:
    """The program whose slots are written in that form, those `of` keys or values."""
    graph = graph_of(program)
    steps = (
        replace(step, form=form) if isinstance(step, Store) and step.of in of else step
        for step in graph.body
    )
    return replace(program, kernel=graph.with_steps(steps))
