"""What a person decides on a bucket of a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter

from attnfuzz.corpus.case import CaseError
from attnfuzz.corpus.decisions.events import Event, NotABug, Verdict, WontFix
from attnfuzz.corpus.decisions.history import nothing_since, record
from attnfuzz.corpus.decisions.status import decisions, in_force, status_of
from attnfuzz.corpus.models import validated

VERDICTS: tuple[str, ...] = tuple(one.model_fields["kind"].default for one in get_args(Verdict))
"""Kinds of decisions: "reported", "not-a-bug", "wont-fix", "duplicate-of", "fixed-in"."""

DAYS = 90
"""For which it holds that something is no bug or will not be fixed, unless another day is given."""


def verdict(kind: str, on: date, **given: Any) -> Verdict:
    """The decision of that kind, one of `VERDICTS`, made on that day. Of `given` (by, why, until,
    and url, other or version) what is None is left out. Raises ProgramError, one sentence that
    names what is wrong."""
    data = {name: value for name, value in given.items() if value is not None}
    if kind in (NotABug.model_fields["kind"].default, WontFix.model_fields["kind"].default):
        data.setdefault("until", on + timedelta(days=DAYS))
    return validated(_VERDICT, {"kind": kind, **data}, kind)


_VERDICT: TypeAdapter[Verdict] = TypeAdapter(Annotated[Verdict, Field(discriminator="kind")])


def decide(bucket_folder: Path, said: Verdict, looked_at: str | None = None) -> Event | None:
    """Writes a decision down, in the place of what is decided on the bucket in that folder so far;
    None where the same person has decided the same. Whoever decides may have `looked_at` the
    history up to the event of that name: see `nothing_since`. Raises CaseError where the bucket is
    a part of another, and OSError."""

    def make(events: list[Event]) -> Verdict | None:
        nothing_since(bucket_folder, events, looked_at)
        into = status_of(events, date.today()).merged_into
        if into is not None:
            raise CaseError(f"{bucket_folder}: it is merged into {into}: decide on that, or undo")
        earlier = decisions(in_force(events))
        if [_content(one.said) for one in earlier] == [_content(said)]:
            return None
        return said.model_copy(update={"instead_of": [one.name for one in earlier]})

    return record(bucket_folder, make)


def _content(said: Verdict) -> Mapping[str, Any]:
    return said.model_dump(exclude={"at", "instead_of"})
