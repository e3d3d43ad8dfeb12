"""What programs of systems have in common: what they do without, one dtype, and lengths that ranks
can share."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed


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


def deals_out(program: Program, system: str, parts: int) -> Iterator[Problem]:
    """The `system` deals out the tokens of what every process has whole: so many `parts`."""
    mesh = program.mesh
    assert mesh is not None
    if (mesh.q, mesh.k, mesh.v, mesh.plain_mask) != ("replicate",) * 3 + (False,):
        yield Problem("mesh", f"expected q, k and v to be whole on every rank: {system} cuts")
    for key, q_len, kv_len in lengths(program):
        if q_len != kv_len or not q_len or q_len % parts:
            yield Problem(f"{key}.q_len", f"expected kv_len, and a multiple of {parts}")


def with_whole_parts(program: Program, parts: int, least: int = 1) -> Program:
    """The program with the next larger length, `least` or more, that can be cut so."""
    length = -(-max(program.shape.q_len, least) // parts) * parts
    return changed(program, shape=changed(program.shape, q_len=length, kv_len=length))
