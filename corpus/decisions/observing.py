"""What campaigns and replays have seen of a bucket, noted in its history where it is new."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attnfuzz.corpus.decisions.events import Event, Seen, Tried
from attnfuzz.corpus.decisions.history import append, history
from attnfuzz.corpus.decisions.status import outcomes
from attnfuzz.corpus.files import locked


def note_seen(bucket_folder: Path, said: Seen) -> Event | None:
    """Notes that a campaign met the bucket in that folder, in a corpus that is locked; None where
    that is noted. Raises CaseError, and OSError."""
    events = history(bucket_folder)
    noted = [one.said for one in events if isinstance(one.said, Seen)]
    content = said.model_dump(exclude={"at", "by"})
    if any(one.model_dump(exclude={"at", "by"}) == content for one in noted):
        return None
    return append(bucket_folder, events, said)


def note_tried(
    bucket_folder: Path, torch: str, found: Mapping[str, str], found_with: str | None
) -> Event | None:
    """Notes what the cases (by their ids) of the bucket in that folder did with `torch`, which are
    recorded with the torch `found_with`; None where all of them did that before. Raises CaseError,
    and OSError."""
    with locked(bucket_folder.parent):
        return note_tried_in(bucket_folder, torch, found, found_with)


def note_tried_in(
    bucket_folder: Path, torch: str, found: Mapping[str, str], found_with: str | None
) -> Event | None:
    """The same in a corpus that is locked."""
    events = history(bucket_folder)
    before = outcomes(events, torch)
    new = {case: outcome for case, outcome in found.items() if before.get(case) != outcome}
    if not new:
        return None
    data = {"torch": torch, "found_with": found_with, "outcomes": dict(sorted(new.items()))}
    return append(bucket_folder, events, Tried.model_validate(data))
