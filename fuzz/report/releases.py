"""What is known of a bucket with each release of torch: as it was recorded, and as campaigns and
replays have noted in its history since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnfuzz.corpus.case import Case
from attnfuzz.corpus.decisions.events import Event, Seen, Tried
from attnfuzz.corpus.decisions.status import outcomes, release

WORDS = {
    "as_recorded": "fails",
    "as_recorded_in_other_words": "fails in other words",
    "flaky": "fails sometimes",
    "changed": "fails otherwise",
    "fixed": "passes",
}
"""What a replay has noted of a case, in the words of a matrix."""


@dataclass(frozen=True)
class Release:
    """What the cases of a bucket do with `torch`, in words, and `since` when that is known, or what
    it was seen by."""

    torch: str
    result: str
    since: str


def releases(cases: Iterable[Case], events: Sequence[Event]) -> list[Release]:
    """By torch's version, the oldest first. What was noted last holds."""
    found = dict[str, Release]()
    for case in cases:
        torch = case.environment.get("torch")
        if torch:
            found[torch] = Release(torch, "fails", "recorded")
    for at, event in enumerate(events):
        said = event.said
        if isinstance(said, Seen):
            found[said.torch] = Release(said.torch, "fails", f"met by {said.campaign}")
        elif isinstance(said, Tried):
            now = outcomes(events[: at + 1], said.torch).values()
            found[said.torch] = Release(said.torch, _words(list(now)), f"tried {said.at[:10]}")
    return sorted(found.values(), key=lambda one: (release(one.torch), one.torch))


def _words(results: Sequence[str]) -> str:
    counts = {WORDS[one]: results.count(one) for one in WORDS if one in results}
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {words}" for words, count in counts.items())
