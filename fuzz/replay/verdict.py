"""Replay: does a recorded case still behave as it did?

The case's `program.yaml` is validated and rendered afresh; the `repro.py` beside it is data and is
never executed. One run that fails as recorded settles a case. Otherwise it is run again, often
enough that a failure which shows as often as recorded would have been seen with `CONFIDENCE`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from attnfuzz.corpus.case import Case
from attnfuzz.fuzz.reduce.seen import Seen, matches, seen, seen_failure
from attnfuzz.fuzz.reduce.wording import reworded
from attnfuzz.generators.model.outcome import Failure, Outcome
from attnfuzz.generators.model.program import Program

CONFIDENCE = 0.99
RUNS_AT_LEAST = 3
RUNS_AT_MOST = 20
"""Keeps a case that failed once in a hundred runs from being run five hundred times."""


class Verdict(StrEnum):
    """`as_recorded`: fails with the recorded kind and key, or (`REWORDED`) the same failure in
    another release's words (see `reduce.wording`). `fixed`: never fails. `changed`: fails, but
    otherwise. `flaky`: recorded as failing always, and now fails only sometimes. `not_run`: its
    target is not to be had here, which says nothing of it."""

    AS_RECORDED = "as_recorded"
    REWORDED = "as_recorded_in_other_words"
    FIXED = "fixed"
    CHANGED = "changed"
    FLAKY = "flaky"
    NOT_RUN = "not_run"


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A case's verdict, what was recorded, and every run in order; `why` it was not run."""

    verdict: Verdict
    expected: Seen
    seen: tuple[Seen, ...]
    why: str = ""

    @property
    def as_recorded(self) -> bool:
        """Whether it fails as recorded, whatever words torch has for it."""
        return self.verdict in (Verdict.AS_RECORDED, Verdict.REWORDED)

    @property
    def summary(self) -> str:
        """The verdict as a person reads it: "fixed", "changed to nonfinite (…)"."""
        if self.verdict is Verdict.REWORDED:
            differs = next(one.reworded for one in self.seen if one.reworded)
            return f"as recorded, in other words ({differs})"
        if self.verdict is not Verdict.CHANGED:
            return self.verdict.value.replace("_", " ")
        other = most_common_failure(self.seen)
        return f"changed to {other.kind} ({other.title})" if other else "changed"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What replay needs of a case: the program, its failure, and how often it failed of how many
    confirmation runs."""

    program: Program
    failure: Failure
    runs: int = 1
    failures: int = 1

    @property
    def reliable(self) -> bool:
        """Did it fail every time?"""
        return self.failures >= self.runs


def recorded(case: Case) -> Recorded:
    """What replay needs of `case`."""
    runs = max(1, case.runs)
    failures = case.failures if case.runs else 1
    return Recorded(program=case.program, failure=case.failure, runs=runs, failures=failures)


def not_run(case: Recorded, why: str) -> Replayed:
    """The result of a case whose target is not to be had, which `why` explains."""
    expected = seen_failure(case.failure, case.program)
    return Replayed(verdict=Verdict.NOT_RUN, expected=expected, seen=(), why=why)


def runs_needed(case: Recorded) -> int:
    """Runs after which a failure that showed in `failures` of `runs` would have been seen with
    probability `CONFIDENCE`: log(1 - CONFIDENCE) / log(1 - failures / runs), within the limits."""
    if case.reliable or case.failures < 1:
        return RUNS_AT_LEAST
    needed = math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - case.failures / case.runs))
    return max(RUNS_AT_LEAST, min(RUNS_AT_MOST, needed))


Evaluate = Callable[[Sequence[Program]], Sequence[Outcome]]
"""Runs each program once, at the same time where it can, and gives their outcomes in order."""


def replay(
    cases: Sequence[Recorded],
    evaluate: Evaluate,
    settled: Callable[[int, Replayed], None] = lambda position, result: None,
) -> list[Replayed]:
    """Runs every case until it is settled whether it still fails as recorded; results in order.

    Goes in rounds, each running every open case once, so that one slow case does not hold up the
    others. `settled` is given each result, with its position, as it is known.
    """
    expected = [seen_failure(case.failure, case.program) for case in cases]
    observed: list[list[Seen]] = [[] for _ in cases]
    results: dict[int, Replayed] = {}
    while open_cases := [place for place in range(len(cases)) if place not in results]:
        outcomes = evaluate([cases[place].program for place in open_cases])
        for place, outcome in zip(open_cases, outcomes, strict=True):
            case, runs = cases[place], observed[place]
            one = _seen(case, outcome, expected[place])
            runs.append(one)
            if _shows(one, expected[place]) or len(runs) >= runs_needed(case):
                verdict = judge(expected[place], runs, case.reliable)
                results[place] = Replayed(
                    verdict=verdict, expected=expected[place], seen=tuple(runs)
                )
                settled(place, results[place])
    return [results[place] for place in range(len(cases))]


def settled(case: Recorded, outcomes: Sequence[Outcome]) -> Verdict:
    """The verdict on a case by its runs, up to the first that failed."""
    expected = seen_failure(case.failure, case.program)
    return judge(expected, [_seen(case, one, expected) for one in outcomes], case.reliable)


def _seen(case: Recorded, outcome: Outcome, expected: Seen) -> Seen:
    one = seen(outcome, case.program)
    if outcome.failure is None or matches(one, expected):
        return one
    return replace(one, reworded=reworded(case.failure, outcome.failure))


def judge(expected: Seen, observed: Sequence[Seen], reliable: bool) -> Verdict:
    """The verdict on runs of a case that was `reliable` (failed every time) or not."""
    shown = [one for one in observed if _shows(one, expected)]
    if shown:
        if reliable and len(shown) < len(observed):
            return Verdict.FLAKY
        literal = any(matches(one, expected) for one in shown)
        return Verdict.AS_RECORDED if literal else Verdict.REWORDED
    return Verdict.FIXED if most_common_failure(observed) is None else Verdict.CHANGED


def _shows(one: Seen, expected: Seen) -> bool:
    """Whether a run failed as recorded, whatever words torch has for it."""
    return matches(one, expected) or one.reworded is not None


def most_common_failure(observed: Sequence[Seen]) -> Seen | None:
    """The failure seen most often, the earliest of those seen equally often; None without any."""
    failed = [one for one in observed if one.status == "failed"]
    if not failed:
        return None
    key, _ = Counter(one.key for one in failed).most_common(1)[0]
    return next(one for one in failed if one.key == key)
