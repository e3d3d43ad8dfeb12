"""What programs of systems have in common: what they do without, and one dtype."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program


def without(program: Program, system: str, *, mesh: bool = False) -> Iterator[Problem]:
    """No transform, no autocast, no second derivative, and no ranks unless it takes a `mesh`."""
    training = program.training
    for key, there in (
        ("transform", program.transform != "none"),
        ("autocast", program.autocast is not None),
        ("mesh", program.mesh is not None and not mesh),
        ("training.double", training is not None and training.double),
    ):
        if there:
            yield Problem(key, f"expected none with {system}")


def one_dtype(program: Program) -> Iterator[Problem]:
    """k and v have q's."""
    for name in ("k", "v"):
        if getattr(program, name).dtype != program.q.dtype:
            yield Problem(f"{name}.dtype", "expected q's")
