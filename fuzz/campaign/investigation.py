"""One finding under investigation, and a task of it that is under way."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from attnfuzz.corpus.bucket import Bucket, may_explain
from attnfuzz.corpus.known_issues import KnownIssue
from attnfuzz.corpus.store.store import FailureRow
from attnfuzz.fuzz.campaign.waits import CHEAP_S
from attnfuzz.fuzz.reduce.attribute import Suspect
from attnfuzz.fuzz.reduce.confirm import attempts_for
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import SEVERITY, Failure

EXPENSIVE_S = 60.0
"""Seconds of a run above which a finding is expensive."""

LATE_S = 120.0
"""Seconds that a finding may wait for its first run while others are minimized."""

OVERDUE_S = 240.0
"""Seconds that a cheap finding which seems known may wait for its first run."""

ByKey = Mapping[str, Sequence[Bucket]]
"""Buckets by their strong keys."""


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

    @cached_property
    def features(self) -> frozenset[str]:
        """Those of the program that was found."""
        return features(self.row.program)

    def is_known(self, buckets: ByKey) -> bool:
        """Whether it seems to be of a known cause: by its record, or as one of the `buckets` of its
        key may explain it, unless it was told apart from those, or a run or two of counterfactuals
        are about to."""
        if self.known is not None:
            return True
        if self.bucket is not None or self.told_apart or self.suspects:
            return False
        return any(may_explain(one, self.features) for one in buckets.get(self.key, ()))

    def is_overdue(self, now: float) -> bool:
        """Whether it is cheap, and has waited too long for its first run even if it is known."""
        return not self.cpu_s and now - self.since > OVERDUE_S and not self.expensive

    def rank(
        self, kinds: Collection[str], buckets: ByKey, now: float
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
        late = not self.cpu_s and now - self.since > LATE_S
        known = self.is_known(buckets) and not self.is_overdue(now)
        minimized = self.bucket is not None
        unconfirmed = not finding.runs and self.candidate_s < CHEAP_S
        begun_by = (known, self.expensive, self.settled, not late, not minimized, not unconfirmed)
        return (*begun_by, cost, kind in kinds, SEVERITY[kind], number)
