"""The controller: one thread that keeps a pool busy and writes down what comes back.

Everything that happened is in the store before anything is done with it, and what is done next is
read off the store; so a campaign that was killed at any instant goes on where it was.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from attnfuzz.actors.shard import Shard, ShardReport
from attnfuzz.corpus.store.rows import RETRIED
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.finding_stages import Work
from attnfuzz.fuzz.campaign.findings_queue import FindingsQueue
from attnfuzz.fuzz.campaign.interruptions import (
    ROOM_BYTES,
    ROOM_S,
    CampaignError,
    disk_errors,
    has_room,
    signals,
)
from attnfuzz.fuzz.campaign.outliers import Outlier, Outliers
from attnfuzz.fuzz.campaign.recorder import Recorder
from attnfuzz.fuzz.campaign.retry import Again, Retry
from attnfuzz.fuzz.campaign.schedule import FairShare, Timetable
from attnfuzz.fuzz.campaign.shards import Shards
from attnfuzz.fuzz.campaign.views import bucket_views
from attnfuzz.fuzz.campaign.waits import NO_PROGRAM, NewPrograms
from attnfuzz.fuzz.pool.pool import Pool
from attnfuzz.fuzz.pool.tasks import (
    Finished,
    Handle,
    NoWorker,
    ShardTask,
    Task,
    TaskFailed,
    WorkerDied,
    cpu_s,
    target_of,
)
from attnfuzz.fuzz.report.live import Snapshot, Watcher

ABSENT_S = 600.0
"""Seconds that a variant waits for a worker of its target, where there is none."""

Owner = Work | Outlier | Again | None
"""What a task is for; None for a shard's."""

TICK_S = 0.5
GRACE_S = 30.0
"""Seconds, and at most a tenth of the budget, that tasks still running at its end are given."""

MAX_DEFECTS = 20
"""Tasks lost by our own fault after which a campaign stops: something is wrong with everything."""


@dataclass(frozen=True)
class CampaignResult:
    """How a campaign ended: "budget", "interrupted", or "nothing left"; what is pending is in the
    store for a resumed run."""

    ended: str
    directory: Path
    snapshot: Snapshot


class Campaign:
    """A campaign in `directory`, on `pool`, recorded in `store`.

    `clock` gives monotonic seconds; `on_snapshot` is shown the state every half second. `run` ends
    at the budget, on SIGINT or SIGTERM (within seconds; a second one interrupts at once), or, with
    `max_shards`, when that many shards are done and nothing is pending.
    """

    def __init__(
        self,
        config: CampaignConfig,
        directory: Path,
        pool: Pool,
        store: Store,
        on_snapshot: Watcher = lambda snapshot: None,
        *,
        scratch: Path | None = None,
        max_shards: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._directory = directory
        self._pool = pool
        self._store = store
        self._on_snapshot = on_snapshot
        self._max_shards = max_shards
        self._clock = clock
        self._timetable = Timetable(config.minutes * 60)
        self._fair = FairShare(config.minimize.pool_share, pool.size)
        self._fair_to_known = FairShare(config.minimize.known_share)
        self._recorder = Recorder(store, self._fair)
        self._queue = FindingsQueue(
            config,
            directory,
            store,
            pool.environment,
            scratch or Path(tempfile.gettempdir()),
            clock,
        )
        self._outliers = Outliers(store, self._queue.buckets, config.targets, clock)
        self._retry = Retry(config, directory, pool.environment().get("torch", "unknown"))
        self._owners: dict[Handle, Owner] = {}
        self._held: list[Work] = []
        self._shards = Shards(config, store, self._queue.buckets, max_shards)
        self._stop = threading.Event()
        self._defects: list[str] = []
        self._lost = 0
        self._shown = float("-inf")
        self._full_since: float | None = None
        self._executed_before = store.totals().executed
        self._started = clock()
        self._new_programs = NewPrograms(self._started)

    def stop(self) -> None:
        """Ask a running campaign to end; what runs is abandoned and done again when resumed."""
        self._stop.set()

    def run(self) -> CampaignResult:
        """Run to the end. Raises CampaignError when it cannot go on (the disk is full, say)."""
        with signals(self.stop), disk_errors(self._directory):
            self._started = self._clock()
            self._new_programs = NewPrograms(self._started)
            ended = self._loop()
            self._queue.close()
            self._new_programs.close(self._clock())
            snapshot = self._snapshot("done")
            self._on_snapshot(snapshot)
            self._recorder.record(snapshot, self._clock())
        return CampaignResult(ended, self._directory, snapshot)

    def _loop(self) -> str:
        while not self._stop.is_set():
            elapsed = self._clock() - self._started
            if self._timetable.must_wind_down(elapsed):
                self._queue.wind_down()
            over = self._timetable.is_over(elapsed)
            waits = not over and self._fill()
            if not self._owners and not waits:
                return "budget" if self._max_shards is None else "nothing left"
            if not has_room(self._directory):
                self._wait_for_room(elapsed, over)
                continue
            self._full_since = None
            if elapsed >= self._timetable.seconds + min(GRACE_S, self._timetable.seconds / 10):
                return "budget"
            finished = self._pool.wait(TICK_S)
            if self._stop.is_set():
                break  # Ctrl-C reaches the workers too: what comes back now may be cut short
            self._take_all(finished)
            if self._clock() - self._shown >= TICK_S:
                snapshot = self._show(elapsed, self._doing(elapsed))
                self._recorder.record_sometimes(snapshot, self._shown)
        return "interrupted"

    def _wait_for_room(self, elapsed: float, over: bool) -> None:
        if self._full_since is None:
            self._full_since = elapsed
        if over or elapsed - self._full_since > ROOM_S:
            raise CampaignError(
                f"{self._directory}: the disk is full, less than {ROOM_BYTES >> 20} MiB are free; "
                "what was saved before is whole, and --resume goes on."
            )
        self._show(elapsed, "waiting for room on the disk")
        self._stop.wait(TICK_S)

    def _show(self, elapsed: float, doing: str) -> Snapshot:
        self._shown = self._clock()
        snapshot = self._snapshot(doing)
        self._on_snapshot(snapshot)
        return snapshot

    def _fill(self) -> bool:
        """Give every free slot a task. True where there is one that waits for a worker."""
        self._fair.workers = self._pool.size
        self._start_held()
        while self._pool.free and not self._stop.is_set():
            now = self._clock()
            shard = self._next_shard(now - self._started)
            work, outlier = None, None
            if shard is None or self._fair.is_due(now):
                outlier = self._outlier() if self._outliers.overdue else None
                if outlier is None:
                    known = shard is None or self._fair_to_known.is_due(now)
                    work = self._queue.next_work(shard is not None, self._pool.takes, known)
                if work is None and outlier is None:
                    outlier = self._outlier()
            if outlier is not None:
                self._start(outlier.task, outlier)
            elif work is not None:
                self._held.append(work)  # a variant may be for another target than its finding
                self._start_held()
            elif shard is not None:
                self._start(ShardTask(self._shards.take(shard)), None)
            elif (again := self._again()) is not None:
                self._start(again.task, again)
            else:
                return self._waits(now - self._started)
        return self._waits(self._clock() - self._started)

    def _outlier(self) -> Outlier | None:
        """A program that was stopped and is run again, while there is time for it."""
        if self._timetable.must_wind_down(self._clock() - self._started):
            return None
        return self._outliers.next_work(self._pool.takes)

    def _again(self) -> Again | None:
        """What is known and due to be tried again, where a worker is free for it."""
        return self._retry.next_work(self._queue.buckets.met(), self._pool.takes)

    def _start_held(self) -> None:
        for work in list(self._held):
            target = target_of(work.task)
            if self._pool.takes(target, work.hardware):
                self._held.remove(work)
                self._start(work.task, work)
            elif not self._pool.serves(target or "", work.hardware) and self._is_late(work):
                self._held.remove(work)
                self._queue.report(work, WorkerDied(0))

    def _is_late(self, work: Work) -> bool:
        return self._clock() - work.since > ABSENT_S

    def _waits(self, elapsed: float) -> bool:
        """Whether something would be done if there were a worker for it."""
        if self._held or self._queue.lacks_worker:
            return True
        if self._outliers.waiting and not self._timetable.must_wind_down(elapsed):
            return True
        return self._timetable.may_find(elapsed, self._queue.pending > 0) and self._shards.left

    def _start(self, task: Task, owner: Owner) -> None:
        hardware = owner.hardware if isinstance(owner, Work) else None
        handle = self._pool.submit(task, hardware)
        self._owners[handle] = owner
        now = self._clock()
        self._fair.start(handle, owner is not None, now)
        known = isinstance(owner, Work) and self._queue.is_known(owner.stage.investigation)
        self._fair_to_known.start(handle, known, now)
        if owner is None:
            self._new_programs.start(handle, now)

    def _next_shard(self, elapsed: float) -> int | None:
        """The least index not done and not running, for whose target a slot is free."""
        if not self._timetable.may_find(elapsed, self._queue.pending > 0):
            self._new_programs.pause(self._clock())
            return None
        return self._shards.find(self._pool.takes)

    def _take_all(self, finished: Sequence[Finished]) -> None:
        """Record what came back, then act on it. All shards are one write to the disk, so that many
        workers cost it little more than few."""
        shards: list[ShardReport] = []
        for one in finished:
            owner = self._take(one)
            if isinstance(owner, Outlier):
                row = self._outliers.report(owner, one)
                if row is not None:
                    self._queue.receive(row)
            elif isinstance(owner, Again):
                self._retry.report(owner, one.result)
                self._store.count("cpu", {RETRIED: cpu_s(one.result)})
            elif owner is not None and isinstance(one.result, NoWorker):
                self._held.append(owner)
            elif owner is not None:
                self._queue.report(owner, one.result)
            else:
                assert isinstance(one.task, ShardTask)
                report = self._shards.receive(_shard_report(one.task.shard, one))
                self._new_programs.stop(one.handle, report.starts, self._clock())
                self._outliers.receive(report.stopped, report.target)
                shards.append(report)
        for row in self._store.record_shards(shards) if shards else ():
            self._queue.receive(row)

    def _take(self, finished: Finished) -> Owner:
        """Takes note of one result, and gives whose it is."""
        owner = self._owners.pop(finished.handle)
        self._fair.stop(finished.handle, self._clock())
        self._fair_to_known.stop(finished.handle, self._clock())
        if isinstance(finished.result, TaskFailed):
            self._note_defect(finished.result.error)
        self._lost += isinstance(finished.result, WorkerDied)
        return owner

    def _note_defect(self, error: str) -> None:
        self._defects.append(error)
        if len(self._defects) > MAX_DEFECTS:
            raise RuntimeError(f"{len(self._defects)} tasks failed, the last with: {error}")

    def _doing(self, elapsed: float) -> str:
        if self._timetable.must_wind_down(elapsed):
            return "winding down"
        finding = self._timetable.may_find(elapsed, self._queue.pending > 0)
        return "finding" if finding else "finishing what was found"

    def _snapshot(self, doing: str) -> Snapshot:
        elapsed = self._clock() - self._started
        totals = self._store.totals()
        by_status = totals.by_status
        return Snapshot(
            elapsed_s=elapsed,
            left_s=max(0.0, self._timetable.seconds - elapsed),
            executed=totals.executed,
            passed=by_status.get("passed", 0),
            rejected=by_status.get("rejected", 0),
            failed=by_status.get("failed", 0),
            shards=totals.shards,
            rate=(totals.executed - self._executed_before) / max(elapsed, 1e-9),
            workers=self._pool.size,
            busy=self._pool.size - self._pool.free,
            spread=self._pool.spread,
            cpu=psutil.cpu_percent() / 100,
            doing=doing,
            pending=self._queue.pending,
            pending_known=self._queue.pending_known,
            waits_s=self._queue.waits_s,
            longest={NO_PROGRAM: self._new_programs.longest} | self._queue.longest_waits,
            stopped=by_status.get("stopped", 0),
            not_run=by_status.get("not_run", 0),
            lost=self._lost,
            defects=by_status.get("defect", 0) + len(self._defects) + len(self._queue.defects),
            buckets=bucket_views(self._queue, self._store),
        )


def _shard_report(shard: Shard, finished: Finished) -> ShardReport:
    answer = finished.result
    if isinstance(answer, TaskFailed | WorkerDied):
        why = answer.error if isinstance(answer, TaskFailed) else "the worker died"
        return ShardReport.of_lost(shard, why)
    assert isinstance(answer, ShardReport)
    return replace(answer, hardware=finished.hardware)
