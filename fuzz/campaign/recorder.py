"""How far a campaign is, written down every few seconds for whoever looks at it."""

from __future__ import annotations

import time

from attnfuzz.corpus.store.progress import Progress
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.schedule import FairShare
from attnfuzz.fuzz.report.live import Snapshot, bucket_count

EVERY_S = 10.0


class Recorder:
    """Writes moments of a campaign to `store`; `fair` knows what its workers were busy with."""

    def __init__(self, store: Store, fair: FairShare) -> None:
        self._store = store
        self._fair = fair
        self._next = float("-inf")

    def record_sometimes(self, snapshot: Snapshot, now: float) -> None:
        """Writes the moment down unless the last one is less than `EVERY_S` ago."""
        if now >= self._next:
            self.record(snapshot, now)

    def record(self, snapshot: Snapshot, now: float) -> None:
        """Writes the moment down; `now` is on the campaign's clock."""
        self._next = now + EVERY_S
        spent = self._fair.spent(now)
        moment = Progress(
            at=time.time(),
            elapsed_s=snapshot.elapsed_s,
            cpu=snapshot.cpu,
            finding_s=spent[False],
            investigating_s=spent[True],
            executed=snapshot.executed,
            failed=snapshot.failed,
            buckets=bucket_count(snapshot),
            pending=snapshot.pending,
            workers=snapshot.workers,
            busy=snapshot.busy,
        )
        self._store.record_progress(moment)
        self._store.keep_longest(snapshot.longest)
