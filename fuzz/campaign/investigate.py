"""One finding under investigation, and the stages that it goes through."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from attnfuzz.actors.sandbox.job import Deadlines, ranks_of
from attnfuzz.actors.sandbox.watchdog import PATIENCE
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.bucket import Bucket, assign
from attnfuzz.corpus.known_issues import KnownIssue
from attnfuzz.corpus.signature import key_without_stack, signature
from attnfuzz.corpus.store.store import FailureRow
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.schedule import Stage
from attnfuzz.fuzz.campaign.tasks import ReproTask, Task
from attnfuzz.fuzz.reduce.confirm import (
    Confirm,
    Validate,
    attempts_for,
    candidate_s,
    hasty,
    repro_timeout,
)
from attnfuzz.fuzz.reduce.evaluate import depends_on_memory
from attnfuzz.fuzz.reduce.minimize import Judge, Minimize, Minimizer, fails_alike
from attnfuzz.fuzz.reduce.variants import Variants, variants
from attnfuzz.fuzz.replay import matches, seen
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import SEVERITY, Failure, FailureKind, Layer, Outcome
from attnfuzz.generators.model.program import Program

ALWAYS_RUNS = 3
"""Runs, all failing, that a candidate needs for a failure that depends on what lies in memory and
has always shown so far."""


FUSED = "inductor.fuse_attention"
"""The feature of a program in which Inductor found attention by hand to fuse."""


@dataclass
class Investigation:
    """One finding and how far it is. `best` and `outcome` are its simplest program so far and what
    that did; `candidate_s` is what one run of a candidate may take, `spent` the workers' time that
    minimizing has taken, in seconds."""

    row: FailureRow
    stage: Stage
    best: Program
    outcome: Outcome
    known: KnownIssue | None
    candidate_s: float
    failed: int = 0
    runs: int = 0
    spent: float = 0.0
    bucket: Bucket | None = None

    @property
    def id(self) -> str:
        return self.row.program_id

    @property
    def key(self) -> str:
        return self.row.strong

    @property
    def failure(self) -> Failure:
        assert self.outcome.failure is not None
        return self.outcome.failure

    def rank(self, filed: Collection[str]) -> tuple[bool, bool, int, bool, int, int]:
        """Known issues after new ones, what is minimized first, then what costs less, of what costs
        alike what is of none of the kinds `filed`, then the worst, in the order they were found.

        The cost is that of one candidate, all its attempts together, as a power of four of seconds:
        a crash that shows in one run of five would else hold up ten findings that always show.
        """
        seconds = attempts_for(self.failed, self.runs) * self.candidate_s
        cost = math.ceil(math.log(max(seconds, 1.0), 4))
        kind, number = self.failure.kind, self.row.number
        known, going_on = self.known is not None, self.bucket is None
        return (known, going_on, cost, kind in filed, SEVERITY[kind], number)


@dataclass(frozen=True)
class Work:
    """A task of a stage of an investigation, given out at `since` on the campaign's clock. Its
    answer may come when the stage is over."""

    investigation: Investigation
    stage: Stage
    task: Task
    since: float


def fails_again(row: FailureRow) -> Judge:
    """Says whether a run of `row`'s program failed as it did, in the way of `Seen`."""
    expected = seen(row.outcome, row.program)
    return lambda program, outcome: (
        outcome.failure is not None and matches(seen(outcome, program), expected)
    )


def fails_wherever(row: FailureRow, kind: FailureKind | None = None) -> Judge:
    """Says whether a run failed as that of `row` did, with its kernel or another.

    What `torch.func.grad` hides, a result that is wrong itself, is what its gradients are wrong by;
    where Inductor fused attention by hand into SDPA, SDPA is what ran; and a crash that has no
    stack may show one in a simpler program.
    """
    alike = fails_alike(row.strong, row.program.kernel, kind)
    failure = row.outcome.failure
    if failure is not None and key_without_stack(failure, row.program) == row.strong:
        return lambda program, outcome: (
            (
                outcome.failure is not None
                and key_without_stack(outcome.failure, program) == row.strong
            )
            or alike(program, outcome)
        )
    if failure is None or not failure.diffs:
        return alike
    if plugin_of(row.program).recognised_as_sdpa and FUSED in row.outcome.features:
        key = signature(
            replace(failure, layer=Layer.EAGER), replace(row.program, kernel=Sdpa())
        ).strong
        itself = fails_alike(key, kind=kind)
        return lambda program, outcome: itself(program, outcome) or alike(program, outcome)
    if row.program.transform != "grad":
        return alike
    of_result = replace(failure, diffs=tuple(replace(d, output="out") for d in failure.diffs))
    key = signature(of_result, row.program).strong
    in_result = fails_alike(key, row.program.kernel)

    def judge(program: Program, outcome: Outcome) -> bool:
        shows = program.transform == "none" and in_result(program, outcome)
        return shows or alike(program, outcome)

    return judge


class Stages:
    """Makes the stages of investigations as the configuration says."""

    def __init__(self, config: CampaignConfig, scratch: Path) -> None:
        self._config = config
        self._scratch = scratch
        self._deadlines = Deadlines(**config.deadlines.model_dump())

    def confirm(self, row: FailureRow) -> Confirm:
        failure = row.outcome.failure
        hangs = failure is not None and failure.kind is FailureKind.HANG
        return Confirm(row.program, fails_again(row), self._config.confirm_runs, hangs=hangs)

    def minimize(self, investigation: Investigation, buckets: Iterable[Bucket]) -> Minimize:
        """The search from the best so far, past programs that one of `buckets` explains."""
        row, failure = investigation.row, investigation.failure
        found = signature(failure, row.program)
        mine = [bucket for bucket in buckets if bucket.strong == row.strong]
        search = Minimizer(
            investigation.best,
            investigation.outcome,
            fails_wherever(row, failure.kind),
            max_candidates=max(1, self._config.minimize.max_candidates - row.evaluated),
            avoid=lambda program: assign(found, failure, features(program), mine) is not None,
        )
        deadlines = None
        if failure.kind is FailureKind.HANG:
            deadlines = hasty(failure, investigation.outcome.cost.phases, self._deadlines)
        if depends_on_memory(failure) and investigation.failed == investigation.runs:
            return Minimize(search, ALWAYS_RUNS, deadlines, always=True)
        attempts = attempts_for(investigation.failed, investigation.runs)
        return Minimize(search, attempts, deadlines)

    def recheck(self, investigation: Investigation) -> Confirm:
        """One more run, at the usual deadlines, of what was minimized with shorter ones."""
        stage = Confirm(investigation.best, fails_wherever(investigation.row), 1, hangs=True)
        stage.name = "rechecking"
        return stage

    def validate(
        self, investigation: Investigation, script: str, *, by_value: bool = False
    ) -> Validate:
        target = TARGETS[investigation.row.target]
        # A run that hangs is not made again with longer deadlines, so those are used at once.
        idle_s = target.deadlines(self._deadlines).times(PATIENCE).idle
        # The script of a virtual target's failure needs the card.
        task = ReproTask(
            script,
            self._config.python,
            str(self._scratch),
            self._config.repro_runs if target.script_runs_here else 0,
            repro_timeout(investigation.failure, self._deadlines),
            idle_s,
            tuple(str(path) for path in self._config.preload),
            ranks_of(investigation.best),
        )
        return Validate(task, investigation.failure, by_value)

    def candidate_s(self, outcome: Outcome) -> float:
        """What one run of a candidate takes, where the whole failed like `outcome`."""
        return candidate_s(outcome, self._deadlines)

    def variants(self, investigation: Investigation) -> Variants:
        best, here = investigation.best, investigation.row.target
        wanted = self._config.variants
        elsewhere = {
            name: best
            for name in self._config.targets
            if wanted
            and name != here
            and TARGETS[name].unfit(best, bool(self._config.preload)) is None
        }
        programs = variants(best) if wanted else {}
        return Variants(programs, fails_wherever(investigation.row), here, elsewhere)
