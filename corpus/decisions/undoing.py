"""What was decided is taken back, by an event that says so."""

from __future__ import annotations

from pathlib import Path

from attnfuzz.corpus.case import CaseError
from attnfuzz.corpus.decisions.events import ON_ITS_OWN, Event, SplitFrom, SplitInto, Undo, sentence
from attnfuzz.corpus.decisions.history import append, history
from attnfuzz.corpus.decisions.splitting import rejoin
from attnfuzz.corpus.decisions.status import in_force
from attnfuzz.corpus.files import locked
from attnfuzz.generators.reading.complaints import mismatch


def undo(
    bucket_folder: Path, name: str | None = None, by: str | None = None
) -> tuple[Event, Event | None]:
    """Takes back the event of the bucket in that folder that is called `name`, or how it begins; by
    default the last thing that somebody has decided. Gives that event, and the one that takes it
    back: None where it was taken back already. Raises CaseError, and OSError."""
    with locked(bucket_folder.parent):
        events = history(bucket_folder)
        event = _wanted(bucket_folder, events, name)
        if isinstance(event.said, SplitFrom):
            raise CaseError(f"{bucket_folder}: it was {sentence(event.said)}: undo that there")
        if all(event.name != one.name for one in in_force(events)):
            return event, None
        if isinstance(event.said, SplitInto):
            rejoin(bucket_folder, event.said, by)
        return event, append(bucket_folder, events, Undo(by=by, event=event.name))


def _wanted(bucket_folder: Path, events: list[Event], name: str | None) -> Event:
    decided = [one for one in events if not isinstance(one.said, ON_ITS_OWN)]
    if name is not None:
        found = [one for one in decided if one.name.startswith(name)]
        if len(found) != 1:
            names = ", ".join(one.name for one in decided) or "none"
            raise CaseError(mismatch(f"{bucket_folder}: {name}", f"one event, of {names}"))
        return found[0]
    found = [one for one in decided if not isinstance(one.said, Undo)]
    if not found:
        raise CaseError(mismatch(bucket_folder, "something decided, to take it back", "nothing"))
    return found[-1]
