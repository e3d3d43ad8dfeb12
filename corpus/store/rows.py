"""What the store gives back: plain typed values, never rows that are tied to a database. A row is
read as what is declared here (see `stored.row_of`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Protocol

from pydantic import ConfigDict, Field

from attnfuzz.corpus.models import (
    Count,
    Data,
    Environment,
    Hex,
    Line,
    Model,
    ProgramId,
    Text,
    VariantName,
    VariantResult,
    read_as,
)
from attnfuzz.generators.model.codec import outcome_from_data, program_id, valid_from_data
from attnfuzz.generators.model.outcome import Failure, Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.complaints import mismatch

_CHECKED = ConfigDict(extra="forbid", strict=False)
"""Of rows; not strict, since text becomes a `State`."""

NEW_PROGRAMS, KNOWN_CAUSES, RETRIED = "new programs", "known causes", "known cases again"
OUTLIERS = "outliers"
"""Some of the things that CPU time is spent on."""


class State(StrEnum):
    """How far a failure is. `flaky`, `duplicate`, `done` and `set aside` (its machines died, so
    that it is not run again) are ends; the others are pending. `minimized` still lacks its case on
    disk, the run of its script, or its variants."""

    NEW = "new"
    CONFIRMING = "confirming"
    CONFIRMED = "confirmed"
    MINIMIZING = "minimizing"
    MINIMIZED = "minimized"
    FLAKY = "flaky"
    DUPLICATE = "duplicate"
    DONE = "done"
    SET_ASIDE = "set aside"


ENDS = frozenset({State.FLAKY, State.DUPLICATE, State.DONE, State.SET_ASIDE})

KEPT = frozenset({State.DONE, State.MINIMIZED})
"""Of failures that were minimized: they speak for their buckets."""


@dataclass(frozen=True, kw_only=True)
class CampaignRow:
    """The one row of the table `campaign`: what a campaign was begun with; `config` is its
    configuration as plain data."""

    __pydantic_config__ = _CHECKED
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)]
    config: Data
    versions: Environment


class CountRow(Model):
    """A row of `counts`."""

    sort: Text
    name: Line
    value: Annotated[int | float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class VariantRow(Model):
    """A row of `variants`."""

    name: VariantName
    result: VariantResult


class EnvironmentRow(Model):
    """A row of `environments`."""

    first: Count
    versions: Environment


def _failed(data: Any) -> Outcome:
    outcome = outcome_from_data(data, "")
    if outcome.failure is None:
        raise ValueError(mismatch("failure", "what failed", "none"))
    return outcome


ValidProgram = Annotated[Program, read_as(Data, partial(valid_from_data, where=""))]
FailedOutcome = Annotated[Outcome, read_as(Data, _failed)]


@dataclass(frozen=True, kw_only=True)
class FailureRow:
    """A row of `failures`: a failing program. `number` counts failures in the order they were
    recorded, from 1. `runs` and `failures` are the confirmation's counts. `shard` is None for a
    failure met while another was minimized. `target` is what it ran on. `best` is the simplest
    program so far that fails alike, with its outcome; `evaluated` how many candidates it took.
    `hardware` is what its worker had that others of the target may not have; None where all have
    the same, or it is not known."""

    __pydantic_config__ = _CHECKED
    number: Count
    program_id: ProgramId
    program: ValidProgram
    outcome: FailedOutcome
    strong: Text
    shard: Count | None
    state: State
    target: Text
    runs: Count
    failures: Count
    bucket: Hex | None
    best: ValidProgram | None
    best_outcome: FailedOutcome | None
    evaluated: Count
    hardware: Text | None = None

    def __post_init__(self) -> None:
        """Raises ValueError where one column contradicts another."""
        if (self.best is None) != (self.best_outcome is None):
            raise ValueError(mismatch("best", "it where there is a best_outcome, only"))
        if (expected := program_id(self.program)) != self.program_id:
            raise ValueError(mismatch("program_id", expected, self.program_id))

    @property
    def failure(self) -> Failure:
        """How the program fails."""
        assert self.outcome.failure is not None
        return self.outcome.failure

    @property
    def simplest(self) -> tuple[Program, Failure]:
        """The simplest program so far that fails alike, and its failure."""
        failure = (self.best_outcome or self.outcome).failure
        assert failure is not None
        return self.best or self.program, failure

    @property
    def pending(self) -> bool:
        """Is there anything left to do with it?"""
        return self.state not in ENDS


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over all shards recorded. `by_key` counts failures by strong key, those that were not
    reported in full too. Times are seconds. `cpu` is by what it was spent on, findings included.
    `attributed` counts by bucket the findings that counterfactuals gave it; of the
    `attributed_checked` that were minimized all the same, `attributed_wrong` were of another, as
    "program: bucket, not bucket". `longest` are the longest waits, in seconds, by their names, and
    `outliers` how many programs that were stopped have ended how since."""

    shards: int = 0
    executed: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    by_key: Mapping[str, int] = field(default_factory=dict)
    rejections: Mapping[str, int] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)
    attributed: Mapping[str, int] = field(default_factory=dict)
    attributed_checked: int = 0
    attributed_wrong: Mapping[str, int] = field(default_factory=dict)
    longest: Mapping[str, float] = field(default_factory=dict)
    outliers: Mapping[str, int] = field(default_factory=dict)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    harness_cpu_s: float = 0.0
    predicted_cpu_s: float = 0.0


class KeptLike(Protocol):
    """A program, and what of the compiler's behaviours it showed."""

    @property
    def program(self) -> Program:
        """The program."""

    @property
    def shows(self) -> Sequence[str]:
        """What it showed."""


class Report(Protocol):
    """A shard's report, as `actors.worker` makes it: counts of everything, and in full only the
    failures that may be new."""

    @property
    def index(self) -> int:
        """The number of the shard, from 0."""

    @property
    def target(self) -> str:
        """The target that the shard ran on."""

    @property
    def hardware(self) -> str | None:
        """What its worker had that others of the target may not; None where all have the same."""

    @property
    def executed(self) -> int:
        """How many programs were run."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many programs ended with each status."""

    @property
    def by_key(self) -> Mapping[str, int]:
        """How many failures had each strong key."""

    @property
    def rejections(self) -> Mapping[str, int]:
        """How many programs were refused or not run for each reason."""

    @property
    def features(self) -> Mapping[str, int]:
        """How many programs had each feature."""

    @property
    def failures(self) -> Any:
        """Pairs of a program and its outcome."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the programs used."""

    @property
    def known_cpu_s(self) -> float:
        """CPU seconds of the programs that failed as is known."""

    @property
    def predicted_cpu_s(self) -> float:
        """CPU seconds that the programs were predicted to use; 0 where that is not known."""

    @property
    def stopped(self) -> Sequence[Program]:
        """Programs that took far longer than predicted."""

    @property
    def kept(self) -> Sequence[KeptLike]:
        """Programs that showed what none had before."""

    @property
    def parents(self) -> Sequence[Program]:
        """What the programs are mutants of."""

    @property
    def wall_s(self) -> float:
        """Wall seconds that the shard took."""

    @property
    def harness_cpu_s(self) -> float:
        """CPU seconds that drawing, rendering, watching and forking used."""
