"""Findings that wait behind one of their key.

Findings that share a strong key, and the hardware that they were found on, are minimized one after
the other, since the first one's bucket mostly answers for the rest. A cheap one that was never run
and has waited for long goes ahead all the same where that bucket may not come soon, or not answer:
behind what seems known, which comes last, it is run once, and with a key without a stack, which
causes share, it is confirmed. Then it waits again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator

from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.investigation import LATE_S, Investigation
from attnfuzz.fuzz.campaign.waits import Waiting

Alike = tuple[str, str | None]
"""A strong key, and the hardware that it was found on."""


class Behind:
    """The findings that wait so, each behind the others of its kind, in the order they came.

    `there` gives the findings in the queue or under investigation, `waiting` tells how long one has
    waited for its first run.
    """

    def __init__(
        self, there: Callable[[], Iterable[Investigation]], buckets: BucketIndex, waiting: Waiting
    ) -> None:
        self._rows: dict[Alike, deque[FailureRow]] = defaultdict(deque)
        self._there = there
        self._buckets = buckets
        self._waiting = waiting

    def __iter__(self) -> Iterator[FailureRow]:
        return (row for rows in self._rows.values() for row in rows)

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows.values())

    def put(self, row: FailureRow) -> None:
        """It waits."""
        self._rows[_alike(row)].append(row)

    def take(self, row: FailureRow) -> list[FailureRow]:
        """Those that waited behind `row` wait no more."""
        return list(self._rows.pop(_alike(row), ()))

    def take_late(self, unless: Callable[[FailureRow], bool]) -> list[FailureRow]:
        """Those that go ahead wait no more, `unless` it is said of them."""
        taken = [row for row in self if self._goes_ahead(row) and not unless(row)]
        for row in taken:
            self._rows[_alike(row)].remove(row)
        return taken

    def _goes_ahead(self, row: FailureRow) -> bool:
        if row.runs or not self._waiting.is_late(row.program_id, LATE_S):
            return False
        return _is_shared(row) or self.seems_known(row)

    def others(self, row: FailureRow) -> list[Investigation]:
        """The other findings of its kind whose buckets are still to be told."""
        there = (one for one in self._there() if not one.settled)
        return [one for one in there if _alike(one.row) == _alike(row) and one.row is not row]

    def seems_known(self, row: FailureRow) -> bool:
        """Whether the one that it waits behind comes last, as it seems known."""
        return any(one.is_known(self._buckets.by_key()) for one in self.others(row))

    def is_one_of_many(self, investigation: Investigation) -> bool:
        """Whether the bucket of another finding that is confirmed will probably answer for it."""
        if investigation.told_apart or investigation.attributed:
            return False
        return any(one.finding.runs for one in self.others(investigation.row))

    def has_run_enough(self, investigation: Investigation) -> bool:
        """Whether one run is enough of it, as a bucket has come with its stack, or an older finding
        with it seems known."""
        row, buckets = investigation.row, self._buckets.by_key()
        if _is_shared(row):
            return False
        older = (one for one in self.others(row) if one.row.number < row.number)
        explained = self._buckets.assign(row.failure, row.program, row.target)
        return explained is not None or any(one.is_known(buckets) for one in older)


def _alike(row: FailureRow) -> Alike:
    """What a failure shares with those that are looked into one after the other."""
    return row.strong, row.hardware


def _is_shared(row: FailureRow) -> bool:
    """Whether several causes may have the key, as it has no stack."""
    return signature(row.failure, row.program).needs_trigger
