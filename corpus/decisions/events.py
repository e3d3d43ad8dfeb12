"""What can happen to a bucket of a corpus, and how a file says it: one file an event, all of them
checked. What takes something back is an event too, so that nothing of a history is ever lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from attnfuzz.corpus.models import Count, Line, Model, ProgramId, Text
from attnfuzz.generators.reading.complaints import mismatch

EVENT_NAME = r"\d{4,8}-[0-9a-f]{12}"


def _day(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return date.fromisoformat(given)
    except ValueError:
        raise ValueError(mismatch("", "a date such as 2027-01-31", repr(given)[:60])) from None


def _moment(given: str) -> str:
    try:
        datetime.strptime(given, _MOMENT)
    except ValueError:
        raise ValueError(mismatch("", "a time such as 2027-01-31T08:00:00Z", repr(given))) from None
    return given


def _version(given: str) -> str:
    try:
        Version(given)
    except InvalidVersion:
        raise ValueError(mismatch("", "a version such as 2.14", repr(given))) from None
    return given


_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
Day = Annotated[date, BeforeValidator(_day)]
Moment = Annotated[str, Field(max_length=20), AfterValidator(_moment)]
Release = Annotated[str, Field(max_length=100), AfterValidator(_version)]
Link = Annotated[str, Field(pattern=r'^https?://[^\s<>"]+$', max_length=500)]
Why = Annotated[Line, Field(min_length=1)]
BucketId = Annotated[str, Field(pattern=r"^[0-9a-f]+$", min_length=1, max_length=16)]
EventName = Annotated[str, Field(pattern=rf"^{EVENT_NAME}$")]
Cases = Annotated[list[ProgramId], Field(min_length=1, max_length=1000)]
Outcome = Literal["as_recorded", "as_recorded_in_other_words", "fixed", "changed", "flaky"]


def now() -> str:
    """The time as events have it, in UTC: a record, by which nothing is ordered."""
    return datetime.now(UTC).strftime(_MOMENT)


class Said(Model):
    """What every event says: when it was written down, and by whom."""

    at: Moment = Field(default_factory=now)
    by: Text | None = None


class Decision(Said):
    """What a person has decided, in the place of earlier decisions (their events' names). After
    `until` it holds no longer, and the bucket is looked at again."""

    instead_of: Annotated[list[EventName], Field(max_length=100)] = []
    until: Day | None = None
    why: Why | None = None


class Reported(Decision):
    """There is a public thread, `url`."""

    kind: Literal["reported"] = "reported"
    url: Link


class NotABug(Decision):
    """It is meant to be so."""

    kind: Literal["not-a-bug"] = "not-a-bug"
    why: Why


class WontFix(Decision):
    """It is one, and will stay."""

    kind: Literal["wont-fix"] = "wont-fix"


class DuplicateOf(Decision):
    """The bucket `other` of this corpus is the same; both stay apart."""

    kind: Literal["duplicate-of"] = "duplicate-of"
    other: BucketId


class FixedIn(Decision):
    """From torch `version` on it should not fail."""

    kind: Literal["fixed-in"] = "fixed-in"
    version: Release


class MergedInto(Said):
    """One cause with the bucket `other` of this corpus, which stays; this one is a part of it."""

    kind: Literal["merged-into"] = "merged-into"
    other: BucketId


class SplitInto(Said):
    """The `cases` became a bucket of their own, `other`."""

    kind: Literal["split-into"] = "split-into"
    other: BucketId
    cases: Cases


class SplitFrom(Said):
    """This bucket was made of `cases` of the bucket `other`, and is kept apart from it."""

    kind: Literal["split-from"] = "split-from"
    other: BucketId
    cases: Cases


class Undo(Said):
    """Takes back the earlier event of that name."""

    kind: Literal["undo"] = "undo"
    event: EventName


class Seen(Said):
    """A campaign, called as its folder, met it in `failures` programs, with that torch."""

    kind: Literal["seen"] = "seen"
    campaign: Text
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    torch: Text
    failures: Count


class Tried(Said):
    """A replay ran its cases with that torch: by a case's id what it did, where that is not what it
    did before. `found_with` is the torch that they are recorded with."""

    kind: Literal["tried"] = "tried"
    torch: Text
    found_with: Text | None = None
    outcomes: Annotated[dict[ProgramId, Outcome], Field(min_length=1, max_length=1000)]


Verdict = Reported | NotABug | WontFix | DuplicateOf | FixedIn
What = Annotated[
    Verdict | MergedInto | SplitInto | SplitFrom | Undo | Seen | Tried,
    Field(discriminator="kind"),
]
WHAT: TypeAdapter[Any] = TypeAdapter(What)
ON_ITS_OWN = (Seen, Tried)
"""What is written down without a person deciding it."""


@dataclass(frozen=True)
class Event:
    """What was said, and the event's name: its place in the history and a digest of the text."""

    name: str
    said: Any

    @property
    def place(self) -> tuple[int, str]:
        """Events are ordered by it."""
        number, _, digest = self.name.partition("-")
        return int(number), digest

    def __str__(self) -> str:
        """`2026-11-24 reported: https://… (Jane)`."""
        by = f" ({self.said.by})" if self.said.by else ""
        return f"{self.said.at[:10]} {sentence(self.said)}{by}"


def sentence(said: Any) -> str:
    """What was said, in words: "reported: https://…", "not a bug: why"."""
    words = _words(said)
    if not isinstance(said, Decision):
        return words
    if said.why and not isinstance(said, NotABug):
        words += f": {said.why}"
    return f"{words}, until {said.until}" if said.until else words


def _words(said: Any) -> str:
    match said:
        case Reported():
            return f"reported: {said.url}"
        case NotABug():
            return f"not a bug: {said.why}"
        case WontFix():
            return "won't fix"
        case DuplicateOf():
            return f"duplicate of {said.other}"
        case FixedIn():
            return f"fixed in {said.version}"
        case MergedInto():
            return f"merged into {said.other}"
        case SplitInto():
            return f"{', '.join(said.cases)} split off into {said.other}"
        case SplitFrom():
            return f"split off from {said.other}"
        case Undo():
            return f"takes back {said.event}"
        case Seen():
            return f"seen by {said.campaign} with torch {said.torch}, {said.failures} failures"
        case _:
            return f"tried with torch {said.torch}: {_outcomes(said.outcomes)}"


def _outcomes(outcomes: Mapping[str, str]) -> str:
    return ", ".join(f"{case} {one.replace('_', ' ')}" for case, one in sorted(outcomes.items()))
