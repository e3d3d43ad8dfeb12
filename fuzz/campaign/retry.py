"""What is known is tried again, so that what was fixed, or came back, is noticed without anybody
asking: the cases of a campaign's corpora, in moments when its workers have nothing else to do.

A bucket is due whose decision has expired or is "fixed in" a version that this torch has reached,
that was never tried with this torch, or not for `EVERY`; in that order, and at most `MOST` in a
campaign. What the campaign meets itself is seen to fail, and is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.verdict import is_defect
from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.corpus.case import Case, case_folders, read_case
from attnfuzz.corpus.decisions.events import Event, FixedIn, Seen, Tried
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.decisions.merging import Standing, standings
from attnfuzz.corpus.decisions.status import release
from attnfuzz.corpus.retried import Retried, RetriedBucket, read_retried, write_retried
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.pool.stage import outcomes_of
from attnfuzz.fuzz.pool.tasks import Answer, RunTask
from attnfuzz.fuzz.replay.verdict import recorded, runs_needed, settled
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.outcome import FailureKind, Outcome

EVERY = timedelta(days=7)
"""After which a bucket is tried again with the same torch."""

MOST = 20
"""Buckets of a campaign that are tried again."""


@dataclass
class Due:
    """A bucket that is tried again: where it stands, its cases, and by their ids what became of
    those that have run; `left` are the others."""

    name: str
    standing: Standing
    cases: dict[str, Case]
    outcomes: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Again:
    """A case's task."""

    due: Due
    case: str
    task: RunTask


class Retry:
    """See the module's docstring. `met` in `next_work` are the ids of the known buckets that the
    campaign has met."""

    def __init__(
        self, config: CampaignConfig, directory: Path, torch: str, on: date | None = None
    ) -> None:
        self._directory, self._torch = directory, torch
        on = on or date.today()
        before = read_retried(directory)
        same = before is not None and before.torch == torch
        self._done = before if before and same else Retried(torch=torch[:300])
        self._waiting = _due(config, torch, on, set(self._done.buckets)) if config.retry else []

    def next_work(self, met: Collection[str], takes: Callable[[str], bool]) -> Again | None:
        """The task of the next case that is due, once the pool `takes` one for its target."""
        while self._waiting:
            due = self._waiting[0]
            if due.left and due.name not in met and due.standing.stays not in met:
                if not takes(_target(due.cases[due.left[0]])):
                    return None
                return Again(due, due.left[0], _task(due.cases[due.left.pop(0)]))
            self._waiting.pop(0)
        return None

    def report(self, again: Again, answer: Answer) -> None:
        """Takes the answer to a task, and writes down what became of a bucket once all of its cases
        have run; one whose case was lost says nothing. Raises OSError."""
        due, case = again.due, again.due.cases[again.case]
        outcomes = outcomes_of(again.task, answer)
        if not outcomes or any(map(_says_nothing, outcomes)):
            due.left.clear()
            return
        due.outcomes[again.case] = settled(recorded(case), outcomes).value
        if len(due.outcomes) < len(due.cases):
            return
        self._done.buckets[due.name] = _became(due, self._torch)
        write_retried(self._directory, self._done)


def _became(due: Due, torch: str) -> RetriedBucket:
    stands = due.standing.status
    became = RetriedBucket.model_validate(
        {"stays": due.standing.stays, "outcomes": dict(sorted(due.outcomes.items()))}
    )
    known = stands.kind == "fixed-in" or stands.passes_with(torch) is not None
    back = None if became.passes else stands.came_back(torch)
    update = {"stopped": became.passes and not known, "came_back": back and back[:300]}
    return became.model_copy(update=update)


def _due(config: CampaignConfig, torch: str, on: date, done: Collection[str]) -> list[Due]:
    preload = {sha256(file.read_bytes()).hexdigest() for file in config.preload}
    functions = {function.target for function in config.functions}
    found: list[tuple[tuple[int, str], Due]] = []
    for corpus in config.corpus:
        for name, standing in standings(corpus, on).items():
            rank = _rank(standing, history(standing.folder), torch, on)
            if rank is None or name in done:
                continue
            cases = {
                case.id: case
                for case in map(read_case, case_folders(standing.folder))
                if _runs_here(case, config, preload, functions)
            }
            if cases:
                due = Due(name=name, standing=standing, cases=cases, left=sorted(cases))
                found.append((rank, due))
    return [due for _, due in sorted(found, key=lambda one: one[0])[:MOST]]


def _rank(standing: Standing, events: list[Event], torch: str, on: date) -> tuple[int, str] | None:
    """The most urgent first, and of those as urgent others every day; None where it is not due."""
    stands = standing.status
    last = max(
        (
            datetime.fromisoformat(one.said.at).date()
            for one in events
            if isinstance(one.said, Seen | Tried) and one.said.torch == torch
        ),
        default=None,
    )
    if last is not None and on - last < EVERY:
        return None
    said = stands.decision.said if stands.decision else None
    fixed = isinstance(said, FixedIn) and release(said.version) <= release(torch)
    urgency = 0 if stands.expired else 1 if fixed else 2 if last is None else 3
    return urgency, sha256(f"{on} {standing.folder.name}".encode()).hexdigest()


def _runs_here(
    case: Case, config: CampaignConfig, preload: Collection[str], functions: Collection[str]
) -> bool:
    """Whether the campaign's workers run the case's target, have loaded its files, and may import
    what it names: a corpus is data."""
    imports = plugin_of(case.program).imports(case.program.kernel)
    return (
        _target(case) in config.targets
        and all(one.sha256 in preload for one in case.preload)
        and (imports is None or imports in functions)
    )


def _target(case: Case) -> str:
    return case.environment.get("target", DEFAULT)


def _task(case: Case) -> RunTask:
    """As often as the failure needs to show. What hung has a quarter of the usual time, as it would
    use all of it."""
    settings = RunSettings(target=_target(case), until="failed")
    if case.failure.kind is FailureKind.HANG:
        short = Deadlines().times(0.25)
        settings = replace(settings, deadlines=short, confirm_hang=False)
    return RunTask((case.program,) * runs_needed(recorded(case)), settings)


def _says_nothing(outcome: Outcome) -> bool:
    return outcome.status not in ("passed", "rejected", "failed") or is_defect(outcome)
