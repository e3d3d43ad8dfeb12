"""A bucket's history on disk: the folder `history` beside its cases, a small file for each event.

A file is never written over and has the digest of its text in its name. So two people who decide in
two clones of a repository write two files, which git merges without a conflict; in one folder a
lock keeps them apart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnfuzz.corpus.case import CaseError
from attnfuzz.corpus.decisions.events import EVENT_NAME, ON_ITS_OWN, WHAT, Event
from attnfuzz.corpus.files import UNFINISHED, locked, write_atomically
from attnfuzz.corpus.models import validated
from attnfuzz.generators.model.codec import dump_yaml, load_yaml_safely
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import (
    ProgramError,
    files_in,
    is_there,
    read_inside,
)

HISTORY = "history"
MAX_EVENTS = 10_000
_NAME = re.compile(rf"({EVENT_NAME})\.yaml")


def history(bucket_folder: Path) -> list[Event]:
    """The events of the bucket in that folder, in order. Raises CaseError, one sentence."""
    try:
        return _read(bucket_folder)
    except ProgramError as error:
        raise CaseError(str(error)) from None


def file_of(said: Any, place: int) -> tuple[str, str]:
    """The name and the text of the file of an event that comes at that place, from 1 on. Raises
    ProgramError for text that no file can hold."""
    text = dump_yaml(_data(said))
    _checked(text, said.kind)  # what is written can be read
    return f"{place:04}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.yaml", text


def record(bucket_folder: Path, make: Callable[[list[Event]], Any]) -> Event | None:
    """Writes down what `make` says, given the history so far, and gives the event; None where it
    says nothing. The corpus is locked meanwhile, so that nobody decides on what has changed since.
    Raises CaseError, and OSError."""
    with locked(bucket_folder.parent):
        there = history(bucket_folder)
        said = make(there)
        return None if said is None else append(bucket_folder, there, said)


def append(bucket_folder: Path, there: list[Event], said: Any) -> Event:
    """Writes down what is said after the events that are `there`, in a corpus that is locked.
    Raises CaseError, and OSError."""
    place = there[-1].place[0] + 1 if there else 1
    name, text = file_of(said, place)
    _add_file(bucket_folder, name, text)
    return Event(name.removesuffix(".yaml"), said)


def add_event(bucket_folder: Path, event: Event) -> None:
    """Takes in an event of another corpus, under its name, in a corpus that is locked. Raises
    CaseError, and OSError."""
    if not is_there(bucket_folder / HISTORY / f"{event.name}.yaml"):
        _add_file(bucket_folder, f"{event.name}.yaml", dump_yaml(_data(event.said)))


def _add_file(bucket_folder: Path, name: str, text: str) -> None:
    """Writes an event's file, and clears away what a crash left behind."""
    folder = bucket_folder / HISTORY
    if is_there(folder) and (folder.is_symlink() or not folder.is_dir()):
        raise CaseError(mismatch(folder, "a folder", "a link or a file"))
    folder.mkdir(exist_ok=True)
    for left in folder.glob(f"{UNFINISHED}*"):
        left.unlink()
    write_atomically(folder / name, text)


def nothing_since(bucket_folder: Path, events: list[Event], looked_at: str | None) -> None:
    """Raises CaseError where somebody has decided something since the event of the name
    `looked_at`, "" before the first, so that nobody decides on what they have not seen; None asks
    for nothing."""
    if looked_at is None:
        return
    names = [event.name for event in events]
    seen = names.index(looked_at) + 1 if looked_at in names else 0
    new = [str(one) for one in events[seen:] if not isinstance(one.said, ON_ITS_OWN)]
    if new or (looked_at and not seen):
        told = "; ".join(new) or "its history is another"
        raise CaseError(f"{bucket_folder}: since you looked at it: {told}: look at it again")


def _read(bucket_folder: Path) -> list[Event]:
    folder = bucket_folder / HISTORY
    if not is_there(folder):
        return []
    if folder.is_symlink():
        raise ProgramError(f"{folder}: expected no link inside a corpus, got one")
    names = files_in(folder, MAX_EVENTS)
    events = []
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None:
            raise ProgramError(mismatch(folder / name, "a name such as 0001-0123456789ab.yaml"))
        events.append(Event(found[1], _event(folder, name)))
    return sorted(events, key=lambda event: event.place)


def _event(folder: Path, name: str) -> Any:
    where = str(folder / name)
    return _checked(read_inside(folder, name), where)


def _checked(text: str, where: str) -> Any:
    return validated(WHAT, load_yaml_safely(text, where), where)


def _data(said: Any) -> dict[str, Any]:
    """As plain data, the kind first, without what is not given."""
    data = said.model_dump(mode="json")
    given = {name: value for name, value in data.items() if value not in (None, [])}
    return {"kind": data["kind"], **given}
