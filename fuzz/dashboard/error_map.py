"""Where an output is off, as far as the evidence of its failure tells."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attnfuzz.generators.model.outcome import Failure

MAP_OF, ELEMENTS_OF = "error map of ", "elements of "
WITHIN, NOT_FINITE = -1, 10
"""Levels besides the powers of ten by which an error exceeds its budget."""

_MOST = 200
"""Rows and columns read of one map."""

_LEVELS = {".": WITHIN, "N": NOT_FINITE, **{str(digit): digit for digit in range(10)}}
_INDEX = re.compile(r"\((\d{1,9}(?:, \d{1,9})*),?\)")


@dataclass(frozen=True)
class ErrorMap:
    """How far `output` is off in each place of its last two dimensions: `levels` by row and column.
    `complete` where it shows all of the output, and not only its worst elements."""

    output: str
    levels: tuple[tuple[int, ...], ...]
    complete: bool

    @property
    def off(self) -> int:
        """Places that are off."""
        return sum(level != WITHIN for row in self.levels for level in row)


def error_maps(failure: Failure) -> list[ErrorMap]:
    """One for each wrong output whose evidence has it."""
    found = []
    for name in dict.fromkeys(diff.output for diff in failure.diffs):
        whole = _whole(name, failure.evidence.get(MAP_OF + name, ""))
        one = whole or _worst(name, failure.evidence.get(ELEMENTS_OF + name, ""))
        if one is not None:
            found.append(one)
    return found


def _whole(name: str, text: str) -> ErrorMap | None:
    lines = [line for line in text.splitlines() if line and not set(line) - _LEVELS.keys()]
    if not lines or len({len(line) for line in lines}) != 1:
        return None
    levels = tuple(tuple(_LEVELS[one] for one in line[:_MOST]) for line in lines[:_MOST])
    return ErrorMap(name, levels, complete=True)


def _worst(name: str, text: str) -> ErrorMap | None:
    places = [tuple(map(int, one.split(", "))) for one in _INDEX.findall(text)]
    at = [(place[-2] if len(place) > 1 else 0, place[-1]) for place in places]
    rows, columns = (max((one[axis] for one in at), default=-1) + 1 for axis in (0, 1))
    if not 0 < rows <= _MOST or not 0 < columns <= _MOST:
        return None
    off = set(at)
    levels = tuple(
        tuple(0 if (row, column) in off else WITHIN for column in range(columns))
        for row in range(rows)
    )
    return ErrorMap(name, levels, complete=False)
