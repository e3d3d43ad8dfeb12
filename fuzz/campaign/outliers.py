"""Outliers: new programs that were stopped as they took far longer than programs like them.

Each is run once more, to its end and with the usual deadlines, one at a time and when nothing else
is to be looked into, or once it has waited for long. What then fails, hangs, or takes compile time
out of all proportion is a finding as any other; most pass. One that has all that a known hang or
explosion needs is that bucket's, and is not run again, but for one in `CHECKED_OF`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.verdict import is_defect
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.counterfactual import holds
from attnfuzz.corpus.store.outliers import SORT, outliers
from attnfuzz.corpus.store.rows import OUTLIERS, FailureRow
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.finding_stages import is_checked
from attnfuzz.fuzz.pool.stage import outcomes_of
from attnfuzz.fuzz.pool.tasks import Finished, RunTask, cpu_s
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import FailureKind
from attnfuzz.generators.model.program import Program

OVERDUE_S = 300.0
"""Seconds after which an outlier goes before findings."""

CHECKED_OF = 20
"""Of how many outliers that seem to be known one is run all the same."""

SLOW = (FailureKind.HANG, FailureKind.COMPILE_TIME)


@dataclass(frozen=True)
class Outlier:
    """A program that was stopped on `target`, at `since` on the campaign's clock."""

    program: Program
    target: str
    since: float

    @property
    def task(self) -> RunTask:
        """What is to be done with it."""
        settings = RunSettings(target=self.target, confirm_hang=False)
        return RunTask((self.program,), settings)


class Outliers:
    """See the module's docstring. Those of `targets` that `store` has are taken up again."""

    def __init__(
        self,
        store: Store,
        buckets: BucketIndex,
        targets: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        self._store, self._buckets, self._clock = store, buckets, clock
        self._waiting: deque[Outlier] = deque()
        self._running = False
        for program, target in store.read(outliers):
            if target in targets:
                self.receive([program], target)

    def receive(self, stopped: Sequence[Program], target: str) -> None:
        """Takes in programs that were stopped on `target`."""
        self._waiting += [Outlier(program, target, self._clock()) for program in stopped]

    @property
    def waiting(self) -> bool:
        """Whether there is one that is to be run."""
        return bool(self._waiting)

    @property
    def overdue(self) -> bool:
        """Whether one has waited for long."""
        there = self._waiting
        return bool(there) and self._clock() - there[0].since > OVERDUE_S

    def next_work(self, takes: Callable[[str], bool]) -> Outlier | None:
        """The next one to run; None where none is there, or one runs already."""
        while self._waiting and not self._running:
            one = self._waiting[0]
            bucket = self._explained_by(one)
            if bucket is not None:
                self._waiting.popleft()
                self._settle(one, f"of {bucket.id}")
            elif takes(one.target):
                self._running = True
                return self._waiting.popleft()
            else:
                return None
        return None

    def report(self, one: Outlier, finished: Finished) -> FailureRow | None:
        """Takes the answer to its task, and gives the failure where it is one."""
        self._running = False
        (outcome,) = outcomes_of(one.task, finished.result)
        row: FailureRow | None = None
        became: str = outcome.status
        if became == "lost":  # as its worker died: the next run of the campaign takes it up again
            return None
        if is_defect(outcome):
            became = "defect"
            self._store.count("status", {became: 1})
        elif outcome.failure is not None:
            row = self._store.add_failure(
                one.program, outcome, target=one.target, hardware=finished.hardware
            )
        self._settle(one, became, cpu_s(finished.result))
        return row

    def _settle(self, one: Outlier, became: str, cpu_s: float = 0.0) -> None:
        """One write, so that a controller that is killed has counted all of it or nothing."""
        ended = {f"{program_id(one.program)} {became}": 1.0}
        self._store.count_all({SORT: ended, "cpu": {OUTLIERS: cpu_s}})

    def _explained_by(self, one: Outlier) -> Bucket | None:
        if is_checked(program_id(one.program), CHECKED_OF):
            return None
        has = features(one.program)
        there = self._buckets.explaining(one.target)
        return next((each for each in there if each.kind in SLOW and holds(each, has)), None)
