"""The public threads that are nearest to a failure, among the known issues."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from attnfuzz.corpus.known_issues import KnownIssue, load_known_issues, match
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Failure
from attnfuzz.generators.model.program import Program

MOST = 3

CIRCUMSTANCES = {
    "versions": "the version that the record is of",
    "targets": "the target that the record is of",
    "expires": "the day until which the record holds",
}
ANYWHERE = {"versions": "", "targets": (), "expires": None}
"""The keys of a record that are of where and when, and what each is where it says nothing."""


@dataclass(frozen=True)
class Near:
    """A known issue, and `why` it is near, in words; `same` where every key of it matches."""

    issue: KnownIssue
    why: str
    same: bool = False


def nearest(
    failure: Failure,
    program: Program,
    environment: Mapping[str, str],
    issues: Iterable[KnownIssue] | None = None,
    *,
    today: date | None = None,
) -> list[Near]:
    """At most three of `issues` (those shipped, by default), the nearest first, each thread once.
    An issue that shares nothing but the kernel is not near."""
    found: list[tuple[int, int, Near]] = []
    for place, issue in enumerate(load_known_issues() if issues is None else issues):
        near = _near(issue, failure, program, environment, today)
        if near is not None:
            found.append((near[0], place, near[1]))
    ordered = [near for _, _, near in sorted(found, key=lambda one: one[:2])]
    links = [near.issue.link for near in ordered]
    return [one for at, one in enumerate(ordered) if one.issue.link not in links[:at]][:MOST]


def _near(
    issue: KnownIssue,
    failure: Failure,
    program: Program,
    environment: Mapping[str, str],
    today: date | None,
) -> tuple[int, Near] | None:
    if match(failure, program, environment, [issue], today=today):
        return 0, Near(issue, "all that the record asks for is so here", same=True)
    wide = issue.model_copy(update=ANYWHERE)
    if match(failure, program, environment, [wide], today=today):
        others = [
            f"{words} ({_told(getattr(issue, key))})"
            for key, words in CIRCUMSTANCES.items()
            if not match(
                failure,
                program,
                environment,
                [wide.model_copy(update={key: getattr(issue, key)})],
                today=today,
            )
        ]
        return 1, Near(issue, f"the same, but for {' and '.join(others)}")
    if issue.message and _found(issue.message, failure):
        return 2, Near(issue, "its message")
    if issue.frame and _found(issue.frame, failure):
        return 3, Near(issue, "its place in torch")
    if issue.message or issue.exception:
        return None
    there = issue.needs_features
    fits = failure.kind in issue.kinds and (
        not issue.kernels or program.kernel.kind in issue.kernels
    )
    if there and fits and there <= features(program):
        return 4, Near(issue, "the same kind of failure of programs like this")
    return None


def _told(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _found(pattern: str, failure: Failure) -> bool:
    raised = failure.raised
    if raised is None:
        return False
    frames = [f"{frame.file}:{frame.function}" for frame in raised.frames]
    return any(re.search(pattern, text) for text in (raised.message, *frames))
