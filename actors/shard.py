"""A shard of a campaign, and what a worker reports of it: what is new, and counts of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from attnfuzz.actors.sandbox.verdict import is_defect, of_machine
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.model.codec import dump_program, program_id
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.swarm import UserFunction

KEPT_PER_KEY = 3

MUTANTS = 500_000_000
"""The number of the first shard of mutants: those before it are drawn."""


@dataclass(frozen=True)
class Kept:
    """A program, and what of the compiler's behaviours it was the first of its worker to show."""

    program: Program
    shows: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """`size` programs, a pure function of `campaign_seed`, `index`, `profiles` ((name, weight)
    pairs) and `functions`, which run on `target`. Failures whose strong key is in `known_keys` are
    only counted. Programs are drawn clear of the causes in `clear_of`, so far as they can be (see
    `corpus.counterfactual`); those of `known` are behind which something else may be.
    Programs whose ids are in `set_aside` are not run: the machines named there died while they
    ran. With `budgets` programs that take far longer than predicted are stopped. With `parents` the
    programs are mutants of these; with `feedback` the report has programs to keep."""

    campaign_seed: int
    index: int
    size: int
    profiles: tuple[tuple[str, float], ...] = (("mixed", 1.0),)
    functions: tuple[UserFunction, ...] = ()
    known_keys: frozenset[str] = frozenset()
    known: tuple[Bucket, ...] = ()
    clear_of: tuple[Bucket, ...] = ()
    target: str = "cpu"
    set_aside: tuple[tuple[str, str], ...] = ()
    budgets: bool = False
    feedback: bool = False
    parents: tuple[Program, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What became of shard `index`. `hardware` is that of its worker, where others have other.

    `counts` by status ("passed", "rejected", "failed", "not_run", "defect"), `by_key` failures by
    strong key, `rejections` by why they were refused or not run, `features` by name. `failures` are
    whole: those with an unknown key, or with a key that several causes may share, `KEPT_PER_KEY` a
    key at most. `steered` counts programs that were changed to be clear of a bucket, by its id.
    `defects` are the harness's own: (program id, the program in YAML and a traceback). `cpu_s` is
    what the programs used, `known_cpu_s` that of programs which failed as is known, `harness_cpu_s`
    what drawing, rendering, watching and forking used. `starts` are the seconds after the shard's
    own beginning at which its programs began. `stopped` are programs that took far longer than
    predicted; `predicted_cpu_s` is what all were predicted to take. `kept` are programs that showed
    what none had before on this worker, `parents` what those of a shard of mutants were made of,
    and `novel` how much of it all was new to the campaign, which the controller says. `behind`
    counts programs that were run beside those drawn, behind a known failure.
    """

    index: int
    target: str = "cpu"
    hardware: str | None = None
    executed: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    by_key: dict[str, int] = field(default_factory=dict)
    rejections: dict[str, int] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    failures: list[tuple[Program, Outcome]] = field(default_factory=list)
    steered: dict[str, int] = field(default_factory=dict)
    defects: tuple[tuple[str, str], ...] = ()
    cpu_s: float = 0.0
    known_cpu_s: float = 0.0
    wall_s: float = 0.0
    harness_cpu_s: float = 0.0
    starts: tuple[float, ...] = ()
    stopped: tuple[Program, ...] = ()
    predicted_cpu_s: float = 0.0
    kept: tuple[Kept, ...] = ()
    parents: tuple[Program, ...] = ()
    novel: int = 0
    behind: int = 0

    @classmethod
    def of_lost(cls, shard: Shard, why: str) -> ShardReport:
        """The report of a shard that no worker could finish."""
        return cls(
            index=shard.index, target=shard.target, parents=shard.parents, defects=(("", why),)
        )


class Tally:
    """Gathers the outcomes of a shard into its report."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._counts: Counter[str] = Counter()
        self._keys: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()
        self._features: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._failures: list[tuple[Program, Outcome]] = []
        self._defects: list[tuple[str, str]] = []
        self._steered: Counter[str] = Counter()
        self._cpu_s = self._known_cpu_s = 0.0
        self._starts: list[float] = []
        self._stopped: list[Program] = []
        self._keeps: list[Kept] = []
        self._predicted_s = 0.0
        self._behind = 0

    def begin(self, seconds: float, predicted_s: float = 0.0) -> None:
        """Notes that a program begins, so many seconds after the shard, and the CPU seconds that it
        is expected to take."""
        self._starts.append(round(seconds, 2))
        self._predicted_s += predicted_s

    def keep(self, program: Program, shows: Iterable[str]) -> None:
        """Takes in a program that shows what none has shown before."""
        self._keeps.append(Kept(program, tuple(sorted(shows))))

    def go_behind(self) -> None:
        """Counts a program that is run beside those drawn, behind a known failure."""
        self._behind += 1

    def steer(self, clear_of: Iterable[str]) -> None:
        """Counts a program that was changed to be clear of the buckets with those ids."""
        self._steered.update(clear_of)

    def set_aside(self, program: Program, machines: str) -> None:
        """Counts a program that is not run, as those machines died while it ran."""
        self._counts["set_aside"] += 1
        self._failures.append((program, of_machine(machines)))

    def add(self, program: Program, outcome: Outcome) -> None:
        """Counts one outcome, and keeps it if it is new."""
        self._cpu_s += outcome.cost.cpu_s
        self._features.update(outcome.features)
        if is_defect(outcome):
            self._counts["defect"] += 1
            text = f"{dump_program(program)}\n{_why(outcome)}"
            self._defects.append((program_id(program), text))
            return
        self._counts[outcome.status] += 1
        if outcome.status == "stopped":
            self._stopped.append(program)
        elif outcome.rejection is not None:
            self._rejections[outcome.rejection] += 1
        if outcome.failure is not None:
            self._add_failure(program, outcome)

    def _add_failure(self, program: Program, outcome: Outcome) -> None:
        assert outcome.failure is not None
        found = signature(outcome.failure, program)
        self._keys[found.strong] += 1
        known = found.strong in self._shard.known_keys and not found.needs_trigger
        if found.strong in self._shard.known_keys:
            self._known_cpu_s += outcome.cost.cpu_s
        if not known and self._kept[found.strong] < KEPT_PER_KEY:
            self._kept[found.strong] += 1
            self._failures.append((program, outcome))

    def report(self, wall_s: float, harness_cpu_s: float) -> ShardReport:
        """The report; keys are in sorted order."""
        return ShardReport(
            index=self._shard.index,
            target=self._shard.target,
            executed=self._counts.total(),
            counts=dict(sorted(self._counts.items())),
            by_key=dict(sorted(self._keys.items())),
            rejections=dict(sorted(self._rejections.items())),
            features=dict(sorted(self._features.items())),
            failures=self._failures,
            steered=dict(sorted(self._steered.items())),
            defects=tuple(self._defects),
            cpu_s=round(self._cpu_s, 3),
            known_cpu_s=round(self._known_cpu_s, 3),
            wall_s=round(wall_s, 3),
            harness_cpu_s=round(harness_cpu_s, 3),
            starts=tuple(self._starts),
            stopped=tuple(self._stopped),
            predicted_cpu_s=round(self._predicted_s, 3),
            kept=tuple(self._keeps),
            parents=self._shard.parents,
            behind=self._behind,
        )


def _why(outcome: Outcome) -> str:
    assert outcome.failure is not None
    raised = outcome.failure.raised
    reason = f"{raised.type}: {raised.message}" if raised else outcome.failure.kind.value
    return outcome.failure.evidence.get("traceback", reason)
