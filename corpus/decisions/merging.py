"""Buckets that are one cause. Nothing is moved: the history of the one that is a part of another
says so, and whoever reads the corpus takes the two for one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from attnfuzz.corpus.case import CaseError, buckets_in
from attnfuzz.corpus.decisions.events import Event, MergedInto
from attnfuzz.corpus.decisions.history import append, history, nothing_since
from attnfuzz.corpus.decisions.status import Status, status_of
from attnfuzz.corpus.files import locked


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A bucket's folder, where it stands, and the id of the bucket that stays: its own, unless it
    is merged into another."""

    folder: Path
    status: Status
    stays: str


def standings(corpus: Path, on: date) -> dict[str, Standing]:
    """Where each bucket of a corpus stands on that day, by its id. Raises CaseError."""
    there = {
        name: (folder, status_of(history(folder), on))
        for name, folder in buckets_in(corpus).items()
    }
    into = {name: status.merged_into for name, (_, status) in there.items()}
    return {
        name: Standing(folder=folder, status=status, stays=_stays(name, into))
        for name, (folder, status) in there.items()
    }


def _stays(name: str, into: dict[str, str | None]) -> str:
    """Follows `into` from `name` on. Two that two people merged into each other at the same time
    are one too: the lesser id stays."""
    passed = [name]
    while True:
        following = into[passed[-1]]
        if following is None or following not in into:
            return passed[-1]
        if following in passed:
            return min(passed[passed.index(following) :])
        passed.append(following)


def merge(
    stays: Path, other: Path, by: str | None = None, looked_at: str | None = None
) -> Event | None:
    """The bucket in the folder `other` becomes a part of that in `stays`, of the same corpus; None
    where it is. `looked_at` is of the history of the former: see `nothing_since`. Raises CaseError,
    and OSError."""
    corpus = stays.parent
    with locked(corpus):
        there = standings(corpus, date.today())
        ids = {one.folder.name: name for name, one in there.items()}
        kept, part = ids[stays.name], ids[other.name]
        if there[part].stays == there[kept].stays != part:
            return None
        if there[kept].stays == part:
            what = "the same" if kept == part else f"{kept}, which is merged into {part}"
            raise CaseError(f"{other}: expected a bucket to merge it into, got {what}")
        events = history(other)
        nothing_since(other, events, looked_at)
        return append(other, events, MergedInto(by=by, other=there[kept].stays))
