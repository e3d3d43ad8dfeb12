"""What the stages of a campaign's findings share: its configuration, its folder, its buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attnfuzz.actors.sandbox.job import Deadlines, launched_ranks_of
from attnfuzz.actors.sandbox.watchdog import PATIENCE
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.known_issues import KnownIssue
from attnfuzz.corpus.store.machine_deaths import MACHINES_A_PROGRAM, machine_deaths
from attnfuzz.corpus.store.store import FailureRow, State, Store
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.investigation import Investigation
from attnfuzz.fuzz.pool.tasks import ReproTask
from attnfuzz.fuzz.reduce.confirm import attempts_for
from attnfuzz.fuzz.reduce.deadlines import repro_timeout
from attnfuzz.fuzz.reduce.judges import fails_in_any_words, fails_wherever
from attnfuzz.fuzz.reduce.validate import Validate
from attnfuzz.fuzz.reduce.variants import Releases, Variants, variants


@dataclass(kw_only=True)
class Context:
    """See the module's docstring. `environment` gives that of a target's workers with some
    hardware, `active` what is under investigation, `reliability` says by a bucket's id how often
    its first program failed ("5/5"), `defects` are tracebacks of our own. `reassessed` are ids of
    programs that were found to fail mostly in another way than they were found with."""

    config: CampaignConfig
    directory: Path
    store: Store
    scratch: Path
    environment: Callable[[str | None, str | None], Mapping[str, str]]
    buckets: BucketIndex
    issues: Sequence[KnownIssue]
    winding_down: bool = False
    active: list[Investigation] = field(default_factory=list)
    reliability: dict[str, str] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)
    reassessed: set[str] = field(default_factory=set)

    @property
    def deadlines(self) -> Deadlines:
        """The usual deadlines of the campaign."""
        return self.config.deadlines

    def environment_of(self, row: FailureRow) -> dict[str, str]:
        """Where a failure was seen."""
        return TARGETS[row.target].environment(self.environment(row.target, row.hardware))

    def is_set_aside(self, program: str) -> bool:
        """Whether the program with that id is not run any more, as machines died of it."""
        return len(self.store.read(machine_deaths).get(program, ())) >= MACHINES_A_PROGRAM

    def cases_of(self, bucket: Bucket) -> int:
        """How many failures of a bucket have, or will have, a case of their own."""
        rows = self.store.failures(bucket=bucket.id)
        return sum(row.state in (State.MINIMIZED, State.DONE) for row in rows)

    def shared(self, investigation: Investigation) -> bool:
        """Whether another finding under investigation is of the same bucket."""
        return any(
            one.bucket == investigation.bucket for one in self.active if one is not investigation
        )

    def validation(
        self, investigation: Investigation, script: str, *, by_value: bool = False
    ) -> Validate:
        """The stage that runs `script`, the finding's, in clean processes."""
        finding, target = investigation.finding, TARGETS[investigation.row.target]
        # A run that hangs is not made again with longer deadlines, so those are used at once.
        idle_s = target.deadlines(self.deadlines).times(PATIENCE).idle
        # The script of a virtual target's failure needs the card, or one for each rank.
        task = ReproTask(
            script,
            self.config.python,
            str(self.scratch),
            self.config.repro_runs if target.script_runs_here(finding.best) else 0,
            repro_timeout(finding.failure, self.deadlines),
            idle_s,
            tuple(str(path) for path in self.config.preload),
            launched_ranks_of(finding.best),
            investigation.row.target,
            self.config.limits.disk_mb,
        )
        return Validate(task, finding.failure, by_value)

    def variants(self, investigation: Investigation) -> Variants:
        """The stage that runs the variants of the finding's minimized program."""
        finding, here = investigation.finding, investigation.row.target
        wanted = self.config.variants
        elsewhere = {
            name: finding.best
            for name in self.config.targets
            if wanted
            and name != here
            and TARGETS[name].unfit(finding.best, bool(self.config.preload)) is None
        }
        programs = variants(finding.best) if wanted else {}
        judge = fails_wherever(finding.program, finding.outcome)
        alike = fails_in_any_words(finding.best_outcome)
        releases = Releases(
            finding.best,
            self.config.others,
            attempts_for(finding.failed, finding.runs),
            lambda program, outcome: judge(program, outcome) or alike(program, outcome),
        )
        return Variants(programs, judge, here, elsewhere, releases)


def reliability_of(store: Store) -> dict[str, str]:
    """By a bucket's id, how often its first program failed, as far as it is recorded."""
    return {
        row.bucket: f"{row.failures}/{row.runs}"
        for row in reversed(store.failures())
        if row.bucket is not None and row.runs
    }
