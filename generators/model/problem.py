"""A rule that a program breaks, and what rules look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attnfuzz.generators.model.program import Program


class Problem(NamedTuple):
    """A broken rule: the dotted `key` it is about, and what was expected there, as a sentence."""

    key: str
    sentence: str


def lengths(p: Program) -> Iterator[tuple[str, int, int]]:
    """Key prefix, Lq and Lkv of every call."""
    yield "shape", p.shape.q_len, p.shape.kv_len
    for i, call in enumerate(p.calls):
        yield f"calls[{i}]", call.q_len, call.kv_len
