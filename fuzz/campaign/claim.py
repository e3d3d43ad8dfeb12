"""A campaign's directory is claimed: one campaign at a time, and nothing left of one that could not
begin."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from attnfuzz.corpus.store.opening import LOCK
from attnfuzz.corpus.store.store import DATABASE
from attnfuzz.fuzz.campaign.controller import CampaignError
from attnfuzz.generators.reading.files import regular_or_missing

SIDES = ("", "-journal", "-wal", "-shm")
"""Ends of the names of SQLite's files."""


@dataclass
class Claim:
    """What a launch has made, `files` and `folders` (innermost first), before its campaign has
    `begun`."""

    files: list[Path]
    folders: list[Path]
    begun: bool = False

    def take_back(self) -> None:
        """Removes it, where the campaign has not begun."""
        if self.begun:
            return
        with contextlib.suppress(OSError):  # somebody else's things are in there by now
            for file in self.files:
                file.unlink(missing_ok=True)
            for folder in self.folders:
                folder.rmdir()


def _take_lock(lock: IO[str], directory: Path) -> None:
    for left in reversed(range(3)):  # who reads there looks at the lock for an instant
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not left:
                raise CampaignError(f"{directory}: another campaign is running there.") from error
            time.sleep(0.05)


@contextlib.contextmanager
def claim(directory: Path) -> Iterator[Claim]:
    """Holds `directory`, made where it is missing, for one campaign at a time. Unless that has
    begun in the end, nothing is left that was not there before."""
    made = Claim([], [])
    try:
        made.folders += [one for one in (directory, *directory.parents) if not one.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        regular_or_missing(directory / LOCK)
        new = not (directory / LOCK).exists()
        lock = (directory / LOCK).open("w")
    except OSError as error:
        made.take_back()
        raise CampaignError(f"{directory}: cannot write there: {error.strerror}.") from error
    with lock:
        _take_lock(lock, directory)
        database = [directory / f"{DATABASE}{end}" for end in SIDES]
        made.files += [file for file in database if not file.exists()]
        made.files += [directory / LOCK] if new else []
        try:
            yield made
        finally:
            made.take_back()
