"""Findings that wait behind one of their key.

Findings that share a strong key, and the hardware that they were found on, are minimized one after
the other, since the first one's bucket mostly answers for the rest. A key without a stack is shared
by causes, though: a cheap finding of such a key is confirmed all the same once it has waited for
long, and waits again to be minimized.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator

from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow

Alike = tuple[str, str | None]
"""A strong key, and the hardware that it was found on."""


def alike(row: FailureRow) -> Alike:
    """What a failure shares with those that are looked into one after the other."""
    return row.strong, row.hardware


class Behind:
    """The findings that wait so, each behind the others of its kind, in the order they came."""

    def __init__(self) -> None:
        self._rows: dict[Alike, deque[FailureRow]] = defaultdict(deque)

    def __iter__(self) -> Iterator[FailureRow]:
        return (row for rows in self._rows.values() for row in rows)

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows.values())

    def put(self, row: FailureRow) -> None:
        """It waits."""
        self._rows[alike(row)].append(row)

    def take(self, row: FailureRow) -> list[FailureRow]:
        """Those that waited behind `row` wait no more."""
        return list(self._rows.pop(alike(row), ()))

    def take_if(self, late: Callable[[FailureRow], bool]) -> list[FailureRow]:
        """Those that were never run, whose key causes share and that are `late` wait no more."""
        taken = [row for row in self if not row.runs and late(row) and _is_shared(row)]
        for row in taken:
            self._rows[alike(row)].remove(row)
        return taken


def _is_shared(row: FailureRow) -> bool:
    """Whether several causes may have the key."""
    return signature(row.failure, row.program).needs_trigger
