"""What is done with a finding: confirm it, minimize it, give it a bucket, validate, try variants.

The `Desk` holds the findings under investigation. Each step's result is in the store before the
next begins, and a step that was cut short is simply done again: `Desk` reads what is pending from
the store when it is made. Findings that share a strong key are looked into one after the other,
since the first one's bucket mostly answers for the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from attnfuzz.actors.sandbox.verdict import is_defect
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.known_issues import load_known_issues, match
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow, State, Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.filing import bucket_for, flaky_key
from attnfuzz.fuzz.campaign.investigate import Investigation, Stages, Work
from attnfuzz.fuzz.campaign.keep import keep, keep_variants, script
from attnfuzz.fuzz.campaign.known import load_known
from attnfuzz.fuzz.campaign.schedule import Stage
from attnfuzz.fuzz.campaign.shelf import Shelf
from attnfuzz.fuzz.campaign.tasks import Answer, RunTask
from attnfuzz.fuzz.reduce.confirm import Confirm, Validate, is_flaky, is_hasty
from attnfuzz.fuzz.reduce.evaluate import depends_on_memory
from attnfuzz.fuzz.reduce.minimize import Minimize, Minimizer
from attnfuzz.fuzz.reduce.variants import Variants
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome
from attnfuzz.generators.model.program import Program

MAX_FLAKY_PER_KEY = 3
"""Flaky findings of one key after which further ones are not run again, only recorded as flaky."""

MAX_OTHERS_PER_KEY = 2
"""Findings of one other key that one investigation may bring in."""


class Desk:
    """See the module's docstring."""

    def __init__(
        self,
        config: CampaignConfig,
        directory: Path,
        store: Store,
        environment: dict[str, str],
        scratch: Path,
        clock: Callable[[], float],
    ) -> None:
        store.rekey()
        self.shelf = Shelf(store, directory, load_known(config))
        self.active: list[Investigation] = []
        self.defects: list[str] = []
        self._config = config
        self._directory = directory
        self._store = store
        self._environment = environment
        self._clock = clock
        self._stages = Stages(config, scratch)
        self._issues = load_known_issues(config.known_issues)
        self._queue: list[Investigation] = []
        self._waiting: dict[str, deque[FailureRow]] = defaultdict(deque)
        self._flaky = Counter(
            flaky_key(row) for row in store.failures(state=State.FLAKY) if row.runs
        )
        self._reassessed: set[str] = set()
        self._others: Counter[tuple[str, str]] = Counter()
        self._rounding_off = False
        self._parked = 0
        self.reliability = {
            row.bucket: f"{row.failures}/{row.runs}"
            for row in reversed(store.failures())
            if row.bucket is not None and row.runs
        }
        for row in store.pending():
            self.receive(row)

    @property
    def pending(self) -> int:
        """Findings with which something is left to do."""
        waiting = sum(len(rows) for rows in self._waiting.values())
        return len(self.active) + len(self._queue) + waiting + self._parked

    def round_off(self) -> None:
        """Time is nearly up: minimizing keeps the best so far, and nothing new is begun."""
        self._rounding_off = True
        for investigation in list(self.active):
            if isinstance(investigation.stage, Minimize):
                investigation.stage.search.stop()
                self._advance(investigation)

    def receive(self, row: FailureRow) -> None:
        """A recorded failure with which something is left to do."""
        failure = row.outcome.failure
        assert failure is not None
        if row.bucket is None:
            bucket = self.shelf.assign(failure, row.program, row.target)
            if bucket is not None:
                self._end(row, State.DUPLICATE, self.shelf.joined(bucket, failure))
                return
            if self._flaky[flaky_key(row)] >= MAX_FLAKY_PER_KEY:
                self._end(row, State.FLAKY)
                return
            if any(i.key == row.strong for i in [*self.active, *self._queue]):
                self._waiting[row.strong].append(row)
                return
        self._queue.append(self._begin(row, failure))

    def ask(self) -> Work | None:
        """The most urgent task: of a finding already begun, or of one that has to be begun."""
        asked: set[str] = set()
        while True:  # one that has nothing left to do may bring those back that waited for it
            there = [one for one in (*self.active, *self._queue) if one.id not in asked]
            if not there:
                return None
            filed = self.shelf.kinds()
            for investigation in sorted(there, key=lambda one: one.rank(filed)):
                asked.add(investigation.id)
                if investigation in self._queue:
                    if self._rounding_off:
                        continue
                    self._open(investigation)
                work = self._work_of(investigation)
                if work is not None:
                    return work

    def _open(self, investigation: Investigation) -> None:
        """From the queue to the desk."""
        self._queue.remove(investigation)
        self.active.append(investigation)
        if isinstance(investigation.stage, Confirm):
            self._store.update_failure(investigation.id, State.CONFIRMING)

    def _work_of(self, investigation: Investigation) -> Work | None:
        """A task of the stage at hand, or of the next where asking has shown it to be finished."""
        while investigation in self.active:
            stage = investigation.stage
            task = stage.ask()
            self._note_progress(investigation)
            if isinstance(task, RunTask) and task.target is None:
                task = replace(task, target=investigation.row.target)
            if task is not None:
                return Work(investigation, stage, task, self._clock())
            if not stage.finished:
                return None
            self._advance(investigation)
        return None

    def tell(self, work: Work, answer: Answer) -> None:
        """What became of a task."""
        investigation, stage = work.investigation, work.stage
        stage.tell(work.task, answer)
        self._take_others(work)
        if stage is not investigation.stage:
            return
        self._note_progress(investigation)
        if isinstance(stage, Minimize):
            investigation.spent += self._clock() - work.since
            if investigation.spent > self._config.minimize.seconds:
                stage.search.stop()
        self._advance(investigation)

    # From one stage to the next

    def _begin(self, row: FailureRow, failure: Failure) -> Investigation:
        """The investigation of a row, at the stage that its state says."""
        best, outcome = row.best or row.program, row.best_outcome or row.outcome
        known = match(failure, row.program, self._environment_of(row), self._issues)
        investigation = Investigation(
            row,
            self._stages.confirm(row),
            best,
            outcome,
            known,
            self._stages.candidate_s(row.outcome),
            row.failures,
            row.runs,
        )
        if row.bucket is not None:
            investigation.bucket = self.shelf.get(row.bucket)
            investigation.stage = self._after_minimizing(investigation)
        elif row.state in (State.CONFIRMED, State.MINIMIZING):
            investigation.stage = self._minimize(investigation)
        return investigation

    def _advance(self, investigation: Investigation) -> None:
        """Goes from stage to stage while the one at hand is finished."""
        while investigation in self.active and investigation.stage.finished:
            stage = investigation.stage
            if isinstance(stage, Confirm) and stage.name == "confirming":
                self._confirmed(investigation, stage)
            elif isinstance(stage, Confirm):
                self._rechecked(investigation, stage)
            elif isinstance(stage, Minimize):
                self._minimized(investigation, stage.search)
            elif isinstance(stage, Validate):
                self._validated(investigation, stage)
            elif isinstance(stage, Variants):
                assert investigation.bucket is not None
                self._store.save_variants(investigation.id, stage.matrix)
                keep_variants(
                    self._directory, investigation.bucket, investigation.best, stage.matrix
                )
                self._finish(investigation, State.DONE)

    def _confirmed(self, investigation: Investigation, stage: Confirm) -> None:
        failed, runs = stage.failed, stage.runs
        if not runs:  # every one was lost with its worker
            self._park(investigation)
            return
        if stage.mostly is not None and investigation.id not in self._reassessed:
            self._reassessed.add(investigation.id)
            row = self._store.reassess(investigation.id, stage.mostly)
            self._leave(investigation)
            self.receive(row)
            return
        if is_flaky(failed, runs):
            self._store.update_failure(investigation.id, State.FLAKY, runs=runs, failures=failed)
            self._flaky[flaky_key(investigation.row)] += 1
            self._leave(investigation)
            return
        investigation.failed, investigation.runs = failed, runs
        again = stage.outcome
        if again and again.failure and again.failure.kind is investigation.failure.kind:
            investigation.outcome = again
        self._store.update_failure(investigation.id, State.CONFIRMED, runs=runs, failures=failed)
        if self._rounding_off:
            self._park(investigation)
        else:
            investigation.stage = self._minimize(investigation)

    def _minimize(self, investigation: Investigation) -> Minimize:
        explaining = self.shelf.explaining(investigation.row.target)
        return self._stages.minimize(investigation, explaining)

    def _note_progress(self, investigation: Investigation) -> None:
        """Saves a new best of the search at hand."""
        stage = investigation.stage
        if isinstance(stage, Minimize) and stage.progress:
            stage.progress = False
            self._save_progress(investigation, stage.search)

    def _save_progress(self, investigation: Investigation, search: Minimizer) -> None:
        investigation.best, investigation.outcome = search.best, search.outcome
        self._store.update_failure(
            investigation.id,
            State.MINIMIZING,
            best=(search.best, search.outcome),
            evaluated=investigation.row.evaluated + search.evaluated,
        )

    def _minimized(self, investigation: Investigation, search: Minimizer) -> None:
        simpler = investigation.best != investigation.row.program
        if self._rounding_off and not simpler and not search.minimal:
            self._park(investigation)  # a bucket of an unminimized program would explain nothing
        elif simpler and investigation.failure.kind is FailureKind.HANG:
            # Its candidates had shorter deadlines: the result may only be slow.
            investigation.stage = self._stages.recheck(investigation)
        else:
            self._file(investigation)

    def _rechecked(self, investigation: Investigation, stage: Confirm) -> None:
        if stage.outcome is None:
            investigation.best = investigation.row.program
            investigation.outcome = investigation.row.outcome
        else:  # with native stacks, which candidates lack
            investigation.outcome = stage.outcome
        self._file(investigation)

    def _file(self, investigation: Investigation) -> None:
        """Finds or makes the bucket of a minimized failure."""
        program, failure = investigation.best, investigation.failure
        best = (program, investigation.outcome)
        environment = self._environment_of(investigation.row)
        record = match(failure, program, environment, self._issues)
        bucket, is_new = bucket_for(investigation, self.shelf, record)
        bucket = self.shelf.joined(bucket, failure, features(program))
        kept = bucket in self.shelf.known or program_id(program) in bucket.notes.get("repro", {})
        if kept or (not is_new and self._cases(bucket) >= self._config.max_cases_per_bucket):
            self._end(investigation.row, State.DUPLICATE, bucket, best)
            self._leave(investigation)
            return
        self._end(investigation.row, State.MINIMIZED, bucket, best)
        self.reliability.setdefault(bucket.id, f"{investigation.failed}/{investigation.runs}")
        investigation.bucket = bucket
        investigation.stage = self._after_minimizing(investigation)

    def _after_minimizing(self, investigation: Investigation) -> Stage:
        """Validation, or where a case is on disk already, the variants."""
        bucket = investigation.bucket
        assert bucket is not None
        if program_id(investigation.best) in bucket.notes.get("repro", {}):
            return self._stages.variants(investigation)
        return self._stages.validate(investigation, script(investigation, self.defects))

    def _environment_of(self, row: FailureRow) -> dict[str, str]:
        """Where a failure was seen."""
        return TARGETS[row.target].environment(self._environment)

    def _validated(self, investigation: Investigation, stage: Validate) -> None:
        assert investigation.bucket is not None
        by_chance = stage.reproduced < stage.runs and depends_on_memory(investigation.failure)
        if by_chance and not stage.by_value:
            text = script(investigation, self.defects, by_value=True)
            investigation.stage = self._stages.validate(investigation, text, by_value=True)
            return
        others = any(
            one.bucket == investigation.bucket for one in self.active if one is not investigation
        )
        if stage.shows_no_hang and investigation.bucket.notes.get("repro") is None and not others:
            self._withdraw(investigation)
            return
        name = program_id(investigation.best)
        tried = {**investigation.bucket.notes.get("repro", {})}
        tried[name] = {"runs": stage.runs, "reproduced": stage.reproduced}
        # Other findings may have joined the bucket meanwhile: theirs is kept.
        latest = self.shelf.get(investigation.bucket.id)
        bucket = replace(latest, notes={**latest.notes, "repro": tried})
        keep(self._directory, bucket, investigation, stage.task.text,
             self._environment_of(investigation.row), self._config.preload)  # fmt: skip
        self._end(investigation.row, State.MINIMIZED, bucket)
        investigation.bucket = bucket
        if self._rounding_off and self._config.variants:
            self._park(investigation)
        else:
            investigation.stage = self._stages.variants(investigation)

    def _withdraw(self, investigation: Investigation) -> None:
        """Takes the bucket back; what was put into it is flaky."""
        assert investigation.bucket is not None
        self._store.withdraw_bucket(investigation.bucket.id)
        self.shelf.withdraw(investigation.bucket.id)
        self._flaky[flaky_key(investigation.row)] += 1
        self._leave(investigation)

    # Bookkeeping

    def _take_others(self, work: Work) -> None:
        """Failures of another kind met on the way become findings, if nothing explains them yet."""
        investigation = work.investigation
        others = list(work.stage.others)
        work.stage.others.clear()
        for program, outcome in others:
            failure = outcome.failure
            if failure is None or is_defect(outcome) or is_hasty(work.task, outcome):
                continue
            met = (investigation.id, signature(failure, program).strong)
            if self._others[met] >= MAX_OTHERS_PER_KEY:
                continue
            target = investigation.row.target
            if self.shelf.assign(failure, program, target) is not None:
                continue
            self._others[met] += 1
            row = self._store.add_failure(program, outcome, target=target)
            if row is not None:
                self.receive(row)

    def _end(
        self,
        row: FailureRow,
        state: State,
        bucket: Bucket | None = None,
        best: tuple[Program, Outcome] | None = None,
    ) -> None:
        self._store.update_failure(row.program_id, state, bucket=bucket, best=best)
        if bucket is not None:
            self.shelf.put(bucket)

    def _finish(self, investigation: Investigation, state: State) -> None:
        self._store.update_failure(investigation.id, state)
        self._leave(investigation)

    def _park(self, investigation: Investigation) -> None:
        """What is left to do with it is left to a resumed campaign."""
        self._parked += 1
        self._leave(investigation)

    def _leave(self, investigation: Investigation) -> None:
        """Off the desk; those that waited for its answer are looked at again."""
        self.active.remove(investigation)
        waiting = self._waiting.pop(investigation.key, deque())
        for row in waiting:
            self.receive(row)

    def _cases(self, bucket: Bucket) -> int:
        """Failures of a bucket that have, or will have, a case of their own."""
        rows = self._store.failures(bucket=bucket.id)
        return sum(row.state in (State.MINIMIZED, State.DONE) for row in rows)
