"""What the store gives back: plain typed values, never rows that are tied to a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program


class State(StrEnum):
    """How far a failure is. `flaky`, `duplicate` and `done` are ends; the others are pending.
    `minimized` still lacks its case on disk, the run of its script, or its variants."""

    NEW = "new"
    CONFIRMING = "confirming"
    CONFIRMED = "confirmed"
    MINIMIZING = "minimizing"
    MINIMIZED = "minimized"
    FLAKY = "flaky"
    DUPLICATE = "duplicate"
    DONE = "done"


ENDS = frozenset({State.FLAKY, State.DUPLICATE, State.DONE})


@dataclass(frozen=True, kw_only=True)
class CampaignRow:
    """What a campaign was begun with; `config` is its configuration as plain data."""

    seed: int
    config: Mapping[str, Any]
    versions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class FailureRow:
    """A failing program. `number` counts failures in the order they were recorded, from 1. `runs`
    and `failures` are the confirmation's counts. `shard` is None for a failure met while another
    was minimized. `target` is what it ran on. `best` is the simplest program so far that fails
    alike, with its outcome; `evaluated` how many candidates it took."""

    number: int
    program_id: str
    program: Program
    outcome: Outcome
    strong: str
    shard: int | None
    state: State
    target: str = "cpu"
    runs: int = 0
    failures: int = 0
    bucket: str | None = None
    best: Program | None = None
    best_outcome: Outcome | None = None
    evaluated: int = 0

    @property
    def pending(self) -> bool:
        """Is there anything left to do with it?"""
        return self.state not in ENDS


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over all shards recorded. `by_key` counts failures by strong key, those that were not
    reported in full too. Times are seconds."""

    shards: int = 0
    executed: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    by_key: Mapping[str, int] = field(default_factory=dict)
    rejections: Mapping[str, int] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    harness_cpu_s: float = 0.0


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
    def wall_s(self) -> float:
        """Wall seconds that the shard took."""

    @property
    def harness_cpu_s(self) -> float:
        """CPU seconds that drawing, rendering, watching and forking used."""
