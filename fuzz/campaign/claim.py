"""A campaign's directory is claimed: one campaign at a time, and nothing left of one that could not
begin."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from attnfuzz.corpus.store.lease import Held, Lease, holder_of
from attnfuzz.corpus.store.opening import LOCK
from attnfuzz.corpus.store.store import DATABASE
from attnfuzz.fuzz.campaign.interruptions import CampaignError
from attnfuzz.generators.reading.files import regular_or_missing

WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a shared disk says that has no locks: there the lease has to do."""

LOOK_S = 1.0

SIDES = ("", "-journal", "-wal", "-shm")
"""Ends of the names of SQLite's files."""


@dataclass
class Claim:
    """What a launch has made in `directory`: `files` and `folders` (innermost first), before its
    campaign has `begun`."""

    directory: Path
    files: list[Path]
    folders: list[Path]
    begun: bool = False
    lease: Lease | None = None

    def check(self) -> None:
        """Raises CampaignError where the directory is another's by now."""
        taken_by = self.lease.lost_to if self.lease is not None else None
        if taken_by is not None:
            raise CampaignError(
                f"{self.directory}: {taken_by}, has taken the campaign over, as this one did not "
                "answer for too long."
            )

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
    """The lock of this machine, and of a shared disk as far as that has one. Raises Held."""
    for left in reversed(range(3)):  # who reads there looks at the lock for an instant
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not left:
                raise Held(str(holder_of(directory) or "somebody")) from error
            time.sleep(0.05)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
            return None


def _hold(lock: IO[str], directory: Path, wait_s: float) -> Lease:
    """Both the lock and the lease, waiting up to `wait_s` seconds for them. Raises CampaignError
    that says who holds them."""
    end = time.monotonic() + wait_s
    while True:
        try:
            _take_lock(lock, directory)
            return Lease(directory)
        except Held as error:
            if time.monotonic() >= end:
                raise CampaignError(
                    f"{directory}: another campaign is running there: {error}."
                ) from error
            time.sleep(min(LOOK_S, max(0.0, end - time.monotonic())))


@contextlib.contextmanager
def claim(directory: Path, wait_s: float = 0.0) -> Iterator[Claim]:
    """Holds `directory`, made where it is missing, for one campaign at a time; where another holds
    it, waits up to `wait_s` seconds for its end. Unless the campaign has begun in the end, nothing
    is left that was not there before."""
    made = Claim(directory, [], [])
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
        made.lease = lease = _hold(lock, directory, wait_s)
        database = [directory / f"{DATABASE}{end}" for end in SIDES]
        made.files += [file for file in database if not file.exists()]
        made.files += [directory / LOCK] if new else []
        try:
            yield made
        finally:
            lease.close()
            made.take_back()
