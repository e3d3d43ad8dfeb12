"""Failures of another kind that are met while a finding is looked into."""

from __future__ import annotations

from collections import Counter

from attnfuzz.actors.sandbox.verdict import is_defect
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow, Store
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.finding_stages import Work
from attnfuzz.fuzz.reduce.deadlines import first_deadline_only

MAX_PER_KEY = 2
"""Findings of one other key that one investigation may bring in."""


class OtherFailures:
    """Makes findings of them, as far as none of `buckets` explains them."""

    def __init__(self, store: Store, buckets: BucketIndex) -> None:
        self._store = store
        self._buckets = buckets
        self._found: Counter[tuple[str, str]] = Counter()

    def take(self, work: Work) -> list[FailureRow]:
        """The findings that are new of what a task has met: recorded, and to be looked into."""
        investigation, met = work.stage.investigation, work.stage.other_failures
        others = list(met)
        met.clear()
        rows: list[FailureRow] = []
        for program, outcome in others:
            failure = outcome.failure
            if failure is None or is_defect(outcome) or first_deadline_only(work.task, outcome):
                continue
            key = (investigation.id, signature(failure, program).strong)
            if self._found[key] >= MAX_PER_KEY:
                continue
            target, hardware = investigation.row.target, investigation.row.hardware
            if self._buckets.assign(failure, program, target) is not None:
                continue
            self._found[key] += 1
            row = self._store.add_failure(program, outcome, target=target, hardware=hardware)
            if row is not None:
                rows.append(row)
        return rows
