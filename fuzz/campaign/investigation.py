"""One finding under investigation, and a task of it that is under way."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.known_issues import KnownIssue
from attnfuzz.corpus.store.store import FailureRow
from attnfuzz.fuzz.reduce.confirm import attempts_for
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.generators.model.outcome import SEVERITY, Failure


@dataclass(eq=False)
class Investigation:
    """A recorded failure (`row`) and how far it is: what reducing it has shown (`finding`), the
    record of the `known` issue that it may be, its `bucket` once it is minimized. `candidate_s` is
    what one run of a candidate may take, in seconds. Two of them are equal only when they are the
    same one."""

    row: FailureRow
    known: KnownIssue | None
    candidate_s: float
    finding: Finding = field(init=False)
    bucket: Bucket | None = None

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

    def rank(self, kinds: Collection[str]) -> tuple[bool, bool, int, bool, int, int]:
        """Known issues after new ones, what is minimized first, then what costs less, of what costs
        alike what is of none of the `kinds` that have a bucket, then the worst, in the order they
        were found.

        The cost is that of one candidate, all its attempts together, as a power of four of seconds:
        a crash that shows in one run of five would else hold up ten findings that always show.
        """
        finding = self.finding
        seconds = attempts_for(finding.failed, finding.runs) * self.candidate_s
        cost = math.ceil(math.log(max(seconds, 1.0), 4))
        kind, number = self.failure.kind, self.row.number
        known, going_on = self.known is not None, self.bucket is None
        return (known, going_on, cost, kind in kinds, SEVERITY[kind], number)
