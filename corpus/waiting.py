"""What the ranks of a hang wait in, in words: what tells one hang of ranks from another."""

from __future__ import annotations

import re

from attnfuzz.generators.model.outcome import Failure

NAMED = 3
"""Ranks that are named; of more only the number is said."""

_RANK = re.compile(
    r"rank (\d+): (?:.*; )?(?:waits in (\w+)|has (ended)|last did|has begun no collective)"
)
"""A line of the evidence `ranks`, as `actors.sandbox.ranks` and `actors.child.simulation` write."""


def waits(failure: Failure) -> str:
    """ "rank 3 in all_gather, the others in barrier"; empty where all ranks wait in the same, or
    the failure does not say."""
    ways: dict[str, list[int]] = {}
    for line in failure.evidence.get("ranks", "").splitlines():
        if found := _RANK.match(line):
            rank, op, ended = found.groups()
            ways.setdefault(ended or f"in {op or 'no collective'}", []).append(int(rank))
    *fewer, (most, ranks) = sorted(ways.items(), key=lambda way: len(way[1])) or [("", [])]
    if not fewer:
        return ""
    rest = "the others" if len(ranks) > 1 else _named(ranks)
    return ", ".join([*(f"{_named(some)} {way}" for way, some in fewer), f"{rest} {most}"])


def _named(ranks: list[int]) -> str:
    if len(ranks) > NAMED:
        return f"{len(ranks)} ranks"
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"
