"""The findings queue: which finding is looked into next, and how far each is.

Each stage's result is in the store before the next begins, and a stage that was cut short is simply
done again: the queue reads what is pending from the store when it is made. Findings that share a
key are minimized one after the other: see `campaign.behind`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from attnfuzz.actors.sandbox.verdict import is_of_machine
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.known_before import write_known_before
from attnfuzz.corpus.known_issues import load_known_issues, match
from attnfuzz.corpus.store.rows import KNOWN_CAUSES
from attnfuzz.corpus.store.store import FailureRow, State, Store
from attnfuzz.fuzz.campaign.behind import Behind
from attnfuzz.fuzz.campaign.bucket_assignment import flaky_key
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.context import Context, reliability_of
from attnfuzz.fuzz.campaign.finding_stages import (
    FindingStage,
    FindingTransition,
    Work,
    first_stage,
    suspects_of,
)
from attnfuzz.fuzz.campaign.investigation import Investigation
from attnfuzz.fuzz.campaign.known_buckets import load_known
from attnfuzz.fuzz.campaign.other_failures import OtherFailures
from attnfuzz.fuzz.campaign.waits import Waiting
from attnfuzz.fuzz.pool.tasks import Answer, cpu_s
from attnfuzz.fuzz.reduce.attribute import Suspect
from attnfuzz.fuzz.reduce.deadlines import candidate_s

MAX_FLAKY_PER_KEY = 3
"""Flaky findings of one key after which further ones are not run again, only recorded as flaky."""

Takes = Callable[[str, str | None], bool]
"""Whether a worker is free for a target, on that hardware (None: any)."""


class FindingsQueue:
    """See the module's docstring. `buckets` are those of the campaign and those that are known."""

    def __init__(
        self,
        config: CampaignConfig,
        directory: Path,
        store: Store,
        environment: Callable[[str | None, str | None], dict[str, str]],
        scratch: Path,
        clock: Callable[[], float],
    ) -> None:
        store.rekey()
        known = load_known(config, environment(None, None).get("torch", ""))
        if known.before is not None:
            write_known_before(directory, known.before)
        self.buckets = BucketIndex(store, directory, known)
        self._store = store
        self._clock = clock
        self._context = Context(
            config=config,
            directory=directory,
            store=store,
            scratch=scratch,
            environment=environment,
            buckets=self.buckets,
            issues=load_known_issues(config.known_issues),
            reliability=reliability_of(store),
        )
        self._stages: dict[str, FindingStage] = {}
        self._queue: list[Investigation] = []
        self._flaky = Counter(
            flaky_key(row) for row in store.failures(state=State.FLAKY) if row.runs
        )
        self._others = OtherFailures(store, self.buckets)
        self._parked = 0
        self._unrun = Waiting(clock)
        self._behind = Behind(
            lambda: (*self._context.active, *self._queue), self.buckets, self._unrun
        )
        self._at_work: list[Investigation] = []
        self._wound_down = False
        self.lacks_worker = False
        """Whether a finding had to wait for a worker when `next_work` was last called."""
        for row in store.pending():
            self.receive(row)

    @property
    def active(self) -> list[FindingStage]:
        """The stages of the findings that are under investigation, oldest first."""
        return [self._stages[one.id] for one in self._context.active]

    @property
    def reliability(self) -> dict[str, str]:
        """By a bucket's id, how often its first program failed: "5/5"."""
        return self._context.reliability

    @property
    def defects(self) -> list[str]:
        """Tracebacks of what was ours to blame."""
        return self._context.defects

    @property
    def waits_s(self) -> float:
        """For how many seconds the finding has waited that has waited longest for its first run,
        while others were looked into; 0 where none waits."""
        behind = [row.program_id for row in self._behind]
        return self._unrun.seconds([*behind, *(one.id for one in self._queue)])

    @property
    def longest_waits(self) -> dict[str, float]:
        """The longest waits of cheap findings that are over, in seconds, by what they were."""
        return self._unrun.longest

    @property
    def pending(self) -> int:
        """Findings with which something is left to do."""
        there = (self._context.active, self._queue, self._behind)
        return sum(len(some) for some in there) + self._parked

    @property
    def pending_known(self) -> int:
        """Those among them that were known before."""
        there = [one for one in (*self._context.active, *self._queue) if self.is_known(one)]
        return len(there) + sum(
            any(one in there for one in self._behind.others(row)) for row in self._behind
        )

    def is_known(self, investigation: Investigation) -> bool:
        """Whether a finding seems to be of what was known before the campaign."""
        return investigation.is_known(self.buckets.known.by_key)

    def wind_down(self) -> None:
        """Time is nearly up: minimizing keeps the best so far, and nothing new is begun."""
        self._context.winding_down = True
        for investigation in [*self._queue] if not self._wound_down else []:
            bucket = self._explained_by(investigation.row)
            if bucket is not None:
                self._drop(investigation)
                self._take_duplicate(investigation.row, bucket)
        self._wound_down = True
        for investigation in list(self._context.active):
            self._stages[investigation.id].wind_down()
            self._advance(investigation)

    def receive(self, row: FailureRow, waited: bool = False) -> None:
        """Takes in a recorded failure with which something is left to do; it may have `waited`
        behind another of its key."""
        if is_of_machine(row.outcome):
            self._store.update_failure(row.program_id, State.SET_ASIDE)
            return
        self._waits_since(row)
        suspects: Sequence[Suspect] = ()
        if row.bucket is None:
            bucket = self._explained_by(row)
            suspects = self._suspects(row, waited)
            if bucket is not None and not suspects:
                self._take_duplicate(row, bucket)
                return
            if self._is_too_flaky(row):
                self._unrun.end(row.program_id, behind=True)
                self._store.update_failure(row.program_id, State.FLAKY)
                return
            if self._behind.others(row):
                return self._behind.put(row)
        self._add(row, suspects)

    def _waits_since(self, row: FailureRow) -> float:
        """Since when a finding waits for its first run, on the campaign's clock; one that was run
        before does not wait for it."""
        seconds = candidate_s(row.outcome, self._context.deadlines)
        return self._clock() if row.runs else self._unrun.begin(row.program_id, seconds)

    def _explained_by(self, row: FailureRow) -> Bucket | None:
        """The bucket that a failure is of by its key, and where that has no stack by all that its
        program has."""
        if row.bucket is not None:
            return None
        return self.buckets.assign(row.failure, row.program, row.target)

    def _suspects(self, row: FailureRow, waited: bool = False) -> list[Suspect]:
        """The buckets of which a run or two can tell whether the failure is theirs: asked of what
        is new, and of what is confirmed and has `waited` for another's bucket."""
        asked = row.state is State.NEW or (waited and row.state is State.CONFIRMED)
        return suspects_of(row, self._context) if asked and not self._context.winding_down else []

    def _take_duplicate(self, row: FailureRow, bucket: Bucket) -> None:
        self._unrun.end(row.program_id, behind=True, known=bucket.known_issue is not None)
        joined = self.buckets.joined(bucket, row.failure)
        self._store.update_failure(row.program_id, State.DUPLICATE, bucket=joined)
        self.buckets.put(joined)

    def _add(self, row: FailureRow, suspects: Sequence[Suspect]) -> None:
        """Puts a failure into the queue, at the stage that its state says."""
        context, failure = self._context, row.failure
        known = match(failure, row.program, context.environment_of(row), context.issues)
        seconds = candidate_s(row.outcome, context.deadlines)
        investigation = Investigation(row, known, seconds, self._waits_since(row), suspects)
        self._stages[investigation.id] = first_stage(investigation, context)
        self._queue.append(investigation)

    def next_work(self, finding: bool, takes: Takes, known: bool) -> Work | None:
        """The most urgent task: of a finding already begun, or of one that has to be begun. An
        expensive finding has one task out at a time; while new programs are tried (`finding`) all
        expensive ones together have. `takes` says for which targets and hardware a worker is free,
        `known` whether one may be given that was known before, unless it is overdue.
        """
        looked_at: set[str] = set()
        self.lacks_worker = False
        self._release_late()
        while True:  # one that has nothing left to do may bring those back that waited for it
            there = [
                one for one in (*self._context.active, *self._queue) if one.id not in looked_at
            ]
            if not there:
                return None
            kinds, buckets, now = self.buckets.kinds(), self.buckets.by_key(), self._clock()
            for investigation in sorted(there, key=lambda one: one.rank(kinds, buckets, now)):
                looked_at.add(investigation.id)
                overdue = investigation.is_overdue(now) and investigation not in self._at_work
                if not (known or overdue) and self.is_known(investigation):
                    continue
                if investigation.expensive and self._holds_a_worker(investigation, finding):
                    continue
                if investigation in self._queue and self._context.winding_down:
                    continue
                if not takes(investigation.row.target, investigation.row.hardware):
                    self.lacks_worker = True
                    continue
                if investigation in self._queue:
                    self._begin(investigation)
                work = self._work_of(investigation)
                if work is not None:
                    self._at_work.append(investigation)
                    self._unrun.end(investigation.id, known=investigation.is_known(buckets))
                    return work

    def _release_late(self) -> None:
        """Cheap findings that have waited behind others for too long are run before those leave."""
        if not self._context.winding_down:
            for row in self._behind.take_late(unless=self._is_too_flaky):
                self._add(row, self._suspects(row))

    def _is_too_flaky(self, row: FailureRow) -> bool:
        return self._flaky[flaky_key(row)] >= MAX_FLAKY_PER_KEY

    def _holds_a_worker(self, investigation: Investigation, finding: bool) -> bool:
        """Whether an expensive finding has all the workers that it may have."""
        return any(one is investigation or (finding and one.expensive) for one in self._at_work)

    def _begin(self, investigation: Investigation) -> None:
        """From the queue to what is under investigation."""
        self._queue.remove(investigation)
        self._context.active.append(investigation)
        state = self._stages[investigation.id].state
        if state is not None:
            self._store.update_failure(investigation.id, state)

    def _drop(self, investigation: Investigation) -> None:
        """Out of the queue."""
        self._queue.remove(investigation)
        del self._stages[investigation.id]

    def _work_of(self, investigation: Investigation) -> Work | None:
        """A task of the stage at hand, or of the next where that one has turned out finished."""
        while investigation in self._context.active:
            stage = self._stages[investigation.id]
            task = stage.next_task()
            self._save_progress(stage)
            if task is not None:
                return Work(stage, task, self._clock())
            if not stage.finished:
                return None
            self._advance(investigation)
        return None

    def report(self, work: Work, answer: Answer) -> None:
        """Takes the answer to a task."""
        stage = work.stage
        investigation = stage.investigation
        self._at_work.remove(investigation)
        spent = investigation.cpu_s
        spent[stage.name] = spent.get(stage.name, 0.0) + cpu_s(answer)
        stage.report(work.task, answer)
        for row in self._others.take(work):
            self.receive(row)
        if stage is not self._stages.get(investigation.id):
            return
        if stage.shown_again and self._behind.has_run_enough(investigation):
            return self._leave_to_others(investigation)
        self._save_progress(stage)
        stage.spend(self._clock() - work.since)
        self._advance(investigation)

    def _save_progress(self, stage: FindingStage) -> None:
        """Records a simpler program that the stage has found."""
        if stage.has_progress():
            finding = stage.finding
            self._store.update_failure(
                stage.investigation.id,
                State.MINIMIZING,
                best=(finding.best, finding.best_outcome),
                evaluated=stage.evaluated,
            )

    def _advance(self, investigation: Investigation) -> None:
        """Goes from stage to stage while the one at hand is finished."""
        while investigation in self._context.active:
            stage = self._stages[investigation.id]
            if not stage.finished:
                return
            self._apply(investigation, stage.transition())

    def _apply(self, investigation: Investigation, following: FindingTransition) -> None:
        """Records what became of a finding, and begins its next stage or takes it out."""
        again = None
        if following.variants is not None:
            self._store.save_variants(investigation.id, following.variants)
        if following.withdrawn is not None:
            self._store.withdraw_bucket(following.withdrawn.id)
            self.buckets.withdraw(following.withdrawn.id)
        if following.reassessed is not None:
            again = self._store.reassess(investigation.id, following.reassessed)
        if following.state is not None:
            self._store.update_failure(
                investigation.id,
                following.state,
                runs=following.runs,
                failures=following.failures,
                bucket=following.bucket,
                best=following.best,
            )
        if following.bucket is not None:
            self.buckets.put(following.bucket)
        if following.state is State.DUPLICATE:
            self._count_cpu(investigation, known=True)
        if following.state is State.FLAKY or following.withdrawn is not None:
            self._flaky[flaky_key(investigation.row)] += 1
        if following.state is State.CONFIRMED and self._behind.is_one_of_many(investigation):
            return self._wait_to_be_minimized(investigation)
        if following.stage is not None:
            self._stages[investigation.id] = following.stage
            if investigation.settled:
                self._look_at_those_behind(investigation)
            return
        self._parked += following.parked
        self._leave(investigation)
        if again is not None:
            self.receive(again)

    def _wait_to_be_minimized(self, investigation: Investigation) -> None:
        """It is confirmed, and another of its key is looked into."""
        self._take_out(investigation)
        row = self._store.failure(investigation.id)
        assert row is not None
        self._behind.put(row)

    def _leave_to_others(self, investigation: Investigation) -> None:
        """It was run, and is the bucket's that has its stack, or waits for that again."""
        self._count_cpu(investigation, known=True)
        self._take_out(investigation)
        bucket = self._explained_by(investigation.row)
        if bucket is not None:
            return self._take_duplicate(investigation.row, bucket)
        self._store.update_failure(investigation.id, State.NEW)
        self._behind.put(investigation.row)

    def _leave(self, investigation: Investigation) -> None:
        self._take_out(investigation)
        if not investigation.settled:  # else they were looked at when it was
            self._look_at_those_behind(investigation)

    def _look_at_those_behind(self, investigation: Investigation) -> None:
        """Those that waited for its bucket are looked at again."""
        known = investigation.is_known(self.buckets.by_key())
        for row in self._behind.take(investigation.row):
            self._unrun.end(row.program_id, behind=True, known=known)
            self.receive(row, waited=True)
        for other in self._behind.others(investigation.row):
            if other in self._queue and not other.row.runs:
                self._drop(other)
                self.receive(other.row)

    def _take_out(self, investigation: Investigation) -> None:
        self._context.active.remove(investigation)
        self._count_cpu(investigation)
        del self._stages[investigation.id]

    def close(self) -> None:
        """Counts what was spent on the findings that are still under investigation."""
        for investigation in self._context.active:
            self._count_cpu(investigation)
        buckets = self.buckets.by_key()
        for investigation in self._queue:
            self._unrun.end(investigation.id, known=investigation.is_known(buckets))
        for row in self._behind:
            self._unrun.end(row.program_id, behind=True, known=self._behind.seems_known(row))

    def _count_cpu(self, investigation: Investigation, known: bool = False) -> None:
        """Records what was spent on a finding: on which stages, or on what is known."""
        spent = investigation.cpu_s
        if spent:
            self._store.count("cpu", {KNOWN_CAUSES: sum(spent.values())} if known else spent)
        spent.clear()
