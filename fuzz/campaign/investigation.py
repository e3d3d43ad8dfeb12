"""One finding under investigation, and a task of it that is under way."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.known_issues import KnownIssue
from attnfuzz.corpus.store.store import FailureRow
from attnfuzz.fuzz.campaign.waits import CHEAP_S
from attnfuzz.fuzz.reduce.attribute import Suspect
from attnfuzz.fuzz.reduce.confirm import attempts_for
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.generators.model.outcome import SEVERITY, Failure

EXPENSIVE_S = 60.0
"""Seconds of a run above which a finding is expensive."""

LATE_S = 120.0
"""Seconds that a finding may wait for its first run while others are minimized."""

OVERDUE_S = 240.0
"""Seconds that a cheap finding which seems known may wait for its first run."""


@dataclass(eq=False)
class Investigation:
    """A recorded failure (`row`) and how far it is: what reducing it has shown (`finding`), the
    record of the `known` issue that it may be, its `bucket` once it is minimized. `candidate_s` is
    what one run of a candidate may take, in seconds, `since` when it was found, on the campaign's
    clock, `cpu_s` what its stages have taken, by their names. Counterfactuals of its `suspects`
    have `attributed` it to a bucket, or have `told_apart` it from them all; there are none once
    they have been tried. It is `settled` once its script was run: what is left are its variants.
    Two are equal only when they are the same one."""

    row: FailureRow
    known: KnownIssue | None
    candidate_s: float
    since: float = 0.0
    suspects: Sequence[Suspect] = ()
    finding: Finding = field(init=False)
    bucket: Bucket | None = None
    attributed: Bucket | None = None
    told_apart: bool = False
    settled: bool = False
    cpu_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        row = self.row
        self.finding = Finding(
            program=row.program,
            outcome=row.outcome,
            target=row.target,
            best=row.best or row.program,
            best_outcome=row.best_outcome or row.outcome,
            failed=row.failures,
            runs=row.runs,
            evaluated=row.evaluated,
        )

    @property
    def id(self) -> str:
        """The id of the program that was found."""
        return self.row.program_id

    @property
    def key(self) -> str:
        """The strong key that the failure was found with."""
        return self.row.strong

    @property
    def failure(self) -> Failure:
        """How the simplest program so far fails."""
        return self.finding.failure

    @property
    def expensive(self) -> bool:
        """Whether each run of it takes so long that it must not keep more than one worker."""
        return self.candidate_s > EXPENSIVE_S

    def is_known(self, keys: Collection[str]) -> bool:
        """Whether it seems to be of a known cause: by its record, or by its key (one of `keys`,
        those that have a bucket), unless it was told apart from those buckets, or a run or two of
        counterfactuals are about to."""
        has_key = self.key in keys and self.bucket is None
        return self.known is not None or (has_key and not self.told_apart and not self.suspects)

    def rank(
        self, kinds: Collection[str], keys: Collection[str], now: float
    ) -> tuple[bool, bool, bool, bool, bool, bool, int, bool, int, int]:
        """What is known comes last, once it was run: see `is_known`. Expensive findings after cheap
        ones, and of either what is settled last: variants are no causes. Then what has waited too
        long for its first run, what is minimized, what is cheap and has to be confirmed, what costs
        less, of what costs alike what is of none of the `kinds` that have a bucket, then the worst,
        in the order they were found.

        The cost is that of one candidate, all its attempts together, as a power of four of seconds:
        a crash that shows in one run of five would else hold up ten findings that always show.
        """
        finding = self.finding
        seconds = attempts_for(finding.failed, finding.runs) * self.candidate_s
        cost = math.ceil(math.log(max(seconds, 1.0), 4))
        kind, number = self.failure.kind, self.row.number
        waited = 0.0 if self.cpu_s else now - self.since
        late, overdue = waited > LATE_S, waited > OVERDUE_S and not self.expensive
        known = self.is_known(keys) and not overdue
        minimized = self.bucket is not None
        unconfirmed = not finding.runs and self.candidate_s < CHEAP_S
        begun_by = (known, self.expensive, self.settled, not late, not minimized, not unconfirmed)
        return (*begun_by, cost, kind in kinds, SEVERITY[kind], number)
