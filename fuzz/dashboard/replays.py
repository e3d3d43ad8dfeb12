"""What became of a corpus whenever it was replayed, as `attnfuzz replay` wrote it down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnfuzz.corpus.replays import Replays, read_replays
from attnfuzz.fuzz.dashboard.plots import Line, Picture, lines


def replays(corpus: Path) -> list[Replays]:
    """The replays of a corpus, oldest first. Raises CaseError."""
    return sorted(read_replays(corpus), key=lambda one: one.at)


def picture(recorded: Sequence[Replays]) -> Picture:
    """How many cases were as recorded, and how many otherwise, at each replay."""
    names = sorted({name for one in recorded for name in one.counts})
    numbers = list(range(1, len(recorded) + 1))
    given = [
        Line(name.replace("_", " "), numbers, [one.counts.get(name, 0) for one in recorded])
        for name in names
    ]
    last = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in recorded[-1].counts.items()
    )
    return lines(given, "replays", "cases", f"The last replay: {last}.")
