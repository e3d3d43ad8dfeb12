"""The stages of a finding in a campaign, each of which says what follows it.

(Of a known key without a stack: attributing →) confirming → minimizing → (a minimized hang:
rechecking) → bucket assignment → validating → variants. On the way a finding may turn out flaky, a
duplicate, or another failure than it was taken for, and near the end of its time a campaign parks
what it cannot finish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from attnfuzz.corpus.bucket import Tried
from attnfuzz.corpus.store.store import FailureRow, State
from attnfuzz.fuzz.campaign.bucket_assignment import assign_bucket
from attnfuzz.fuzz.campaign.context import Context
from attnfuzz.fuzz.campaign.investigation import Investigation
from attnfuzz.fuzz.campaign.known_buckets import cause_of
from attnfuzz.fuzz.campaign.save_case import keep, keep_variants, script
from attnfuzz.fuzz.campaign.transitions import Transition
from attnfuzz.fuzz.pool.stage import Stage
from attnfuzz.fuzz.pool.tasks import Answer, Task, target_of
from attnfuzz.fuzz.reduce.attribute import Attribute, Suspect, suspected
from attnfuzz.fuzz.reduce.confirm import is_flaky
from attnfuzz.fuzz.reduce.evaluate import depends_on_memory
from attnfuzz.fuzz.reduce.judges import fails_wherever, shows_what_is_beside
from attnfuzz.fuzz.reduce.stage_setup import confirmation, minimization, recheck
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program


class FindingStage(ABC):
    """A stage of `investigation` in the campaign of `context`; its tasks are those of `work`."""

    name: ClassVar[str]
    state: ClassVar[State | None] = None
    """What is recorded when the first task of the stage is given out."""

    def __init__(self, investigation: Investigation, context: Context, work: Stage) -> None:
        self.investigation = investigation
        self.finding = investigation.finding
        self.context = context
        self._work = work

    @property
    def finished(self) -> bool:
        return self._work.finished

    @property
    def other_failures(self) -> list[tuple[Program, Outcome]]:
        """Failures met on the way that are not the one looked into."""
        return self._work.other_failures

    def next_task(self) -> Task | None:
        return self._work.next_task()

    def report(self, task: Task, answer: Answer) -> None:
        self._work.report(task, answer)

    def has_progress(self) -> bool:
        """Whether a simpler program has been found since the last call."""
        return False

    @property
    def evaluated(self) -> int:
        """Candidates that minimizing the finding has taken, in this stage and before."""
        return self.finding.evaluated

    @property
    def shown_again(self) -> bool:
        """Whether a finding that is to be confirmed has failed again."""
        return False

    def spend(self, seconds: float) -> None:  # noqa: B027
        """Counts a worker's time that a task of the stage has taken; most stages have no limit."""

    def wind_down(self) -> None:  # noqa: B027
        """Ends early, where what there is so far can be kept; most stages go on."""

    @abstractmethod
    def transition(self) -> FindingTransition:
        """What follows, once the stage is finished."""


FindingTransition: TypeAlias = Transition[FindingStage]


@dataclass(frozen=True)
class Work:
    """A task of a stage, given out at `since` on the campaign's clock. Its answer may come when the
    stage is over."""

    stage: FindingStage
    task: Task
    since: float

    @property
    def hardware(self) -> str | None:
        """That of the worker on which it was found, where the task is for the same target."""
        row = self.stage.investigation.row
        return row.hardware if target_of(self.task) == row.target else None


class Attributing(FindingStage):
    """Counterfactuals tell whether a failure without a stack is of a cause that is known."""

    name = "attributing"

    def __init__(self, investigation: Investigation, context: Context) -> None:
        finding = investigation.finding
        judge = fails_wherever(finding.program, finding.outcome)
        self._attribute = Attribute(investigation.suspects, judge, finding.target)
        super().__init__(investigation, context, self._attribute)

    def transition(self) -> FindingTransition:
        investigation, context = self.investigation, self.context
        bucket, simpler = self._attribute.bucket, self._attribute.simpler
        investigation.suspects = ()
        if bucket is None:
            investigation.told_apart = simpler is not None
            if simpler is not None:
                self.finding.best, self.finding.best_outcome = simpler
            return self._look_into()
        context.store.count("attributed", {bucket.id: 1})
        investigation.attributed = bucket
        if is_checked(investigation.id, context.config.counterfactuals_checked):
            return self._look_into()
        bucket, has = context.buckets.get(bucket.id), features(self.finding.program)
        joined = context.buckets.joined(bucket, self.finding.failure, has)
        return Transition(state=State.DUPLICATE, bucket=joined)

    def _look_into(self) -> FindingTransition:
        """What comes first when there is no bucket to answer for the finding."""
        if not self.finding.runs:
            return Transition(stage=Confirming(self.investigation, self.context))
        if self.context.winding_down:
            return Transition(parked=True)
        return Transition(stage=Minimizing(self.investigation, self.context))


def is_checked(program: str, of: int) -> bool:
    """Whether a finding that was attributed is minimized all the same, as one in `of` is: told by
    the program's id."""
    return int(program, 16) % of == 0


class Confirming(FindingStage):
    """The program that was found is run afresh."""

    name = "confirming"
    state = State.CONFIRMING

    def __init__(self, investigation: Investigation, context: Context) -> None:
        self._confirm = confirmation(investigation.finding, context.config.confirm_runs)
        super().__init__(investigation, context, self._confirm)

    @property
    def shown_again(self) -> bool:
        return self._confirm.failed > 0

    def transition(self) -> FindingTransition:
        runs, failed = self._confirm.runs, self._confirm.failed
        if not runs:  # every one was lost with its worker
            if self.context.is_set_aside(self.investigation.id):
                return Transition(state=State.SET_ASIDE)
            return Transition(parked=True)
        mostly = self._confirm.mostly
        if mostly is not None and self.investigation.id not in self.context.reassessed:
            self.context.reassessed.add(self.investigation.id)
            return Transition(reassessed=mostly)
        if is_flaky(failed, runs):
            return Transition(state=State.FLAKY, runs=runs, failures=failed)
        self.finding.take_confirmation(self._confirm)
        following = None
        if not self.context.winding_down:
            following = Minimizing(self.investigation, self.context)
        return Transition(
            state=State.CONFIRMED,
            runs=runs,
            failures=failed,
            stage=following,
            parked=following is None,
        )


class Minimizing(FindingStage):
    """The search for the simplest program that fails alike."""

    name = "minimizing"

    def __init__(self, investigation: Investigation, context: Context) -> None:
        # Whether an attribution was right is told by a search that knows nothing of it.
        known = context.buckets.explaining(investigation.row.target)
        self._minimize = minimization(
            investigation.finding,
            context.deadlines,
            context.config.minimize.max_candidates,
            known if investigation.attributed is None else (),
        )
        self._spent = 0.0
        super().__init__(investigation, context, self._minimize)

    def has_progress(self) -> bool:
        if not self._minimize.progress:
            return False
        self._minimize.progress = False
        self.finding.take_best(self._minimize.search)
        return True

    @property
    def evaluated(self) -> int:
        return self.finding.evaluated + self._minimize.search.evaluated

    def spend(self, seconds: float) -> None:
        self._spent += seconds
        if self._spent > self.context.config.minimize.seconds:
            self._minimize.search.stop()

    def wind_down(self) -> None:
        self._minimize.search.stop()

    def transition(self) -> FindingTransition:
        unfinished = self.context.winding_down and not self._minimize.search.minimal
        if unfinished and (not self.finding.simplified or self._has_its_like):
            return Transition(parked=True)  # an unminimized program's bucket would explain nothing
        if self.finding.needs_recheck:
            return Transition(stage=Rechecking(self.investigation, self.context))
        return minimized(self.investigation, self.context)

    @property
    def _has_its_like(self) -> bool:
        """Whether the campaign has a bucket of the kind of a failure without a stack: which of them
        it is of, or that it is another, only its minimized program tells."""
        kind = self.finding.failure.kind.value
        return self.finding.signature.needs_trigger and kind in self.context.buckets.kinds()


class Rechecking(FindingStage):
    """A minimized hang is run once more, at the usual deadlines."""

    name = "rechecking"

    def __init__(self, investigation: Investigation, context: Context) -> None:
        self._recheck = recheck(investigation.finding)
        super().__init__(investigation, context, self._recheck)

    def transition(self) -> FindingTransition:
        self.finding.take_recheck(self._recheck)
        return minimized(self.investigation, self.context)


class Validating(FindingStage):
    """The script of the minimized program is run by itself, in clean processes."""

    name = "validating"

    def __init__(
        self, investigation: Investigation, context: Context, *, by_value: bool = False
    ) -> None:
        text, self._runs_it = script(investigation, context.defects, by_value=by_value)
        self._validate = context.validation(investigation, text, by_value=by_value)
        super().__init__(investigation, context, self._validate)

    def transition(self) -> FindingTransition:
        validate, context = self._validate, self.context
        by_chance = validate.reproduced < validate.runs and depends_on_memory(self.finding.failure)
        if by_chance and not validate.by_value:
            return Transition(stage=Validating(self.investigation, context, by_value=True))
        bucket = self.investigation.bucket
        assert bucket is not None
        alone = not bucket.tried and not context.shared(self.investigation)
        if self._runs_it and validate.shows_no_hang and alone:
            return Transition(withdrawn=bucket)
        # Other findings may have joined the bucket meanwhile: theirs is kept.
        latest = context.buckets.get(bucket.id)
        now = Tried(runs=validate.runs, reproduced=validate.reproduced)
        tried = {**bucket.tried, program_id(self.finding.best): now}
        bucket = replace(latest, tried=tried)
        self.investigation.bucket = bucket
        keep(
            context.directory,
            bucket,
            self.investigation,
            validate.task.text,
            context.environment_of(self.investigation.row),
            context.config.preload,
        )
        if context.winding_down and context.config.has_variants:
            return Transition(state=State.MINIMIZED, bucket=bucket, parked=True)
        following = TryingVariants(self.investigation, context)
        return Transition(state=State.MINIMIZED, bucket=bucket, stage=following)


class TryingVariants(FindingStage):
    """The minimized program is run at other layers, with other kernels, targets and toolchains."""

    name = "variants"

    def __init__(self, investigation: Investigation, context: Context) -> None:
        investigation.settled = True
        self._variants = context.variants(investigation)
        super().__init__(investigation, context, self._variants)

    def transition(self) -> FindingTransition:
        bucket, matrix = self.investigation.bucket, self._variants.matrix
        assert bucket is not None
        keep_variants(self.context.directory, bucket, self.finding.best, matrix)
        return Transition(state=State.DONE, variants=matrix)


def first_stage(investigation: Investigation, context: Context) -> FindingStage:
    """The stage at which a recorded failure is to go on, as its state says."""
    if investigation.row.bucket is not None:
        investigation.bucket = context.buckets.get(investigation.row.bucket)
        return _after_minimizing(investigation, context)
    if investigation.suspects:
        return Attributing(investigation, context)
    if investigation.row.state in (State.CONFIRMED, State.MINIMIZING):
        return Minimizing(investigation, context)
    return Confirming(investigation, context)


def suspects_of(row: FailureRow, context: Context) -> list[Suspect]:
    """The buckets of which a run or two can tell whether a failure is theirs, with the programs to
    run. What depends on what lies in memory may pass by chance, unless that is NaN."""
    failure = row.outcome.failure
    if failure is None or not context.config.counterfactuals:
        return []
    if depends_on_memory(failure) and not shows_what_is_beside(row.program, failure):
        return []
    return suspected(context.buckets.suspects(failure, row.program, row.target), row.program)


def minimized(investigation: Investigation, context: Context) -> FindingTransition:
    """What follows once a finding is minimized: it gets its bucket, and unless that has enough
    cases, a case."""
    bucket, is_duplicate = assign_bucket(investigation, context)
    expected = investigation.attributed
    if expected is not None:
        wrong = f"{investigation.id}: {bucket.id}, not {expected.id}"
        is_duplicate = is_duplicate or bucket.id == expected.id
        same = cause_of(bucket) == cause_of(expected)
        context.store.count("sum", {"attributed_checked": 1})
        context.store.count("attributed_wrong", {} if same else {wrong: 1})
    best = (investigation.finding.best, investigation.finding.best_outcome)
    if is_duplicate:
        return Transition(state=State.DUPLICATE, bucket=bucket, best=best)
    context.reliability.setdefault(
        bucket.id, f"{investigation.finding.failed}/{investigation.finding.runs}"
    )
    investigation.bucket = bucket
    following = _after_minimizing(investigation, context)
    return Transition(state=State.MINIMIZED, bucket=bucket, best=best, stage=following)


def _after_minimizing(investigation: Investigation, context: Context) -> FindingStage:
    """Validation, or where a case is on disk already, the variants."""
    assert investigation.bucket is not None
    if program_id(investigation.finding.best) in investigation.bucket.tried:
        return TryingVariants(investigation, context)
    return Validating(investigation, context)
