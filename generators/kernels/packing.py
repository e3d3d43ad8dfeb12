"""Sequences packed into one row of tokens, whose lengths grow as 1 : 2 : 3."""

from __future__ import annotations

from attnfuzz.generators.render.sizes import Size


def cuts(length: Size, sequences: int) -> str:
    """A list of where the sequences begin, and where the last one ends."""
    parts, steps = sequences * (sequences + 1), [i * (i + 1) for i in range(sequences + 1)]
    if isinstance(length, int):
        return str([length * step // parts for step in steps])
    return f"[{length} * n // {parts} for n in {tuple(steps)}]"
