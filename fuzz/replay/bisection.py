"""Bisection: between which two toolchains, in their order, a case began or ceased to fail.

As `git bisect` does it, with what cannot be told skipped: the ends first, then always the middle of
what is left between a good and a bad one. The change may be either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from attnfuzz.fuzz.replay.matrix import Cell, Result


class Answer(StrEnum):
    """`BAD`: it fails as recorded. `GOOD`: it passes. `UNCLEAR`: it fails otherwise, is refused, or
    its target cannot be served. `BROKEN`: there is no such toolchain, or its torch is not to be
    imported."""

    BAD = "bad"
    GOOD = "good"
    UNCLEAR = "cannot tell"
    BROKEN = "broken"


TELLING = (Answer.BAD, Answer.GOOD)


@dataclass(frozen=True)
class Step:
    """What one toolchain says: its name, what became of it, and `detail` for a person."""

    name: str
    answer: Answer
    detail: str = ""


@dataclass(frozen=True)
class Change:
    """Neighbours that differ, in the toolchains' order; `unclear` lie between the two, and could
    not be told."""

    before: Step
    after: Step
    unclear: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The change in a sentence."""
        found = f"first {self.after.answer}: {self.after.name}"
        last = f"last {self.before.answer} before it: {self.before.name}"
        rest = f"; between them nothing is known of {', '.join(self.unclear)}"
        return f"{found}; {last}{rest if self.unclear else ''}"


@dataclass(frozen=True)
class Bisection:
    """The `steps` in the order in which they were made, and the `changes` that were found: none,
    one, or, of what came and went, two."""

    steps: tuple[Step, ...]
    changes: tuple[Change, ...] = ()

    @property
    def summary(self) -> str:
        """The answer, a line for each change."""
        if self.changes:
            return "\n".join(map(str, self.changes))
        told = [step for step in self.steps if step.answer in TELLING]
        if len(told) < 2:
            return "nothing found: fewer than two toolchains could be told"
        names = f"{', '.join(step.name for step in told[:-1])} and {told[-1].name}"
        return f"no change found: {names} are all {told[0].answer}"


def answer_of(cell: Cell) -> Answer:
    """What a cell of the matrix says to a bisection. A failure that shows in some runs is there."""
    if cell.result in (Result.FAILS, Result.REWORDED, Result.SOMETIMES):
        return Answer.BAD
    return Answer.GOOD if cell.result is Result.PASSES else Answer.UNCLEAR


def bisect(count: int, test: Callable[[int], Step], recorded: int | None = None) -> Bisection:
    """Finds where `count` toolchains change; `test` runs the case with the one at that place. Each
    is tested once at most. Where the ends agree, one more is asked: the one that the case was
    `recorded` with, if it is among them, else that in the middle."""
    known: dict[int, Step] = {}

    def told(place: int) -> bool:
        if place not in known:
            known[place] = test(place)
        return known[place].answer in TELLING

    def between(low: int, high: int) -> Change:
        while open_places := [place for place in range(low + 1, high) if place not in known]:
            place = min(open_places, key=lambda place: (abs(2 * place - low - high), place))
            if told(place):
                if known[place].answer is known[low].answer:
                    low = place
                else:
                    high = place
        unclear = tuple(known[place].name for place in range(low + 1, high))
        return Change(known[low], known[high], unclear)

    low = next(filter(told, range(count)), None)
    high = next(filter(told, reversed(range(count))), None)
    if low is None or high is None:
        return Bisection(tuple(known.values()))
    turns = [low, high]
    if known[low].answer is known[high].answer:
        asked = recorded if recorded is not None else (low + high) // 2
        turns = [low, asked, high] if low < asked < high and told(asked) else []
    changes = tuple(
        between(one, other)
        for one, other in pairwise(turns)
        if known[one].answer is not known[other].answer
    )
    return Bisection(tuple(known.values()), changes)
