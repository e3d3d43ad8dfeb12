"""Hand-written sources that follow the contract between a rendered program and the child."""

from __future__ import annotations

from benchmarks.misbehaviours import program

_COMPILED = """

compiled = torch.compile(attention)
"""


def source(body: str = "pass", *, compiled: bool = False) -> str:
    """A program whose attention function runs `body` before it computes the right result."""
    return program(body) + _COMPILED if compiled else program(body)
