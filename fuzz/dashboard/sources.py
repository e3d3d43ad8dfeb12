"""What the pages are about: campaigns and corpora, read anew whenever they have changed.

Nothing there is written to or held: of a campaign that runs, the database is opened for each
look and closed again, so that its writer never waits for a reader. One that has ended or was killed
stays open until it changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from attnfuzz.corpus.case import BUCKET
from attnfuzz.corpus.decisions.history import HISTORY
from attnfuzz.corpus.store.opening import LOCK, is_running
from attnfuzz.corpus.store.store import DATABASE, Store
from attnfuzz.fuzz.errors import UserError, user_path
from attnfuzz.fuzz.report.findings import CASES, bucket_folders
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import is_there

REMEMBERED = 32
"""Answers kept of one source."""

Value = TypeVar("Value")
State = tuple[tuple[str, int, int], ...]


@dataclass
class Source:
    """A campaign in `directory`, or a corpus there. `number` is its place in addresses."""

    number: int
    directory: Path
    is_campaign: bool
    _remembered: OrderedDict[Hashable, tuple[State, Any]] = field(default_factory=OrderedDict)
    _open: tuple[State, Store] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        """What a person calls it: the directory as it was named."""
        return str(self.directory)

    @property
    def corpus(self) -> Path:
        """The folder of its buckets."""
        return self.directory / CASES if self.is_campaign else self.directory

    @property
    def running(self) -> bool:
        """Whether the campaign is running. Raises UserError where that cannot be seen."""
        with user_path(self.directory):
            return self.is_campaign and is_running(self.directory / LOCK)

    def state(self) -> State:
        """Equal while nothing has changed there."""
        names = [self.corpus]
        if self.is_campaign:
            names += [self.directory / f"{DATABASE}{end}" for end in ("", "-wal")]
        else:
            for folder in bucket_folders(self.directory):
                names += [folder, folder / BUCKET, folder / HISTORY]
        return tuple(_stat(name) for name in names)

    def version(self) -> str:
        """Another text whenever something has changed there, or the campaign has begun or ended."""
        try:
            seen = f"{self.state()} {self.running}"
        except (OSError, ValueError, UserError):
            return ""  # the page itself says what is wrong
        return hashlib.sha256(seen.encode()).hexdigest()[:16]

    def remember(self, what: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` gives, made again when something has changed there."""
        with self._lock:
            state = self.state()
            known = self._remembered.get(what)
            if known is not None and known[0] == state:
                self._remembered.move_to_end(what)
                value: Value = known[1]
                return value
            value = make()
            self._remembered[what] = state, value
            while len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
            return value

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        """The campaign's database, to read; not within another look at it. Raises StoreError."""
        with self._lock:
            if self.running:
                self.close()
                with Store(self.directory, create=False) as store:
                    yield store
                return
            state = self.state()
            if self._open is None or self._open[0] != state:
                self.close()
                self._open = state, Store(self.directory, create=False)
            yield self._open[1]

    def close(self) -> None:
        """Closes what is open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def sources(directories: Sequence[Path]) -> list[Source]:
    """The campaigns and corpora at `directories`. Raises UserError for one that is neither."""
    found = list[Source]()
    for directory in directories:
        with user_path(directory):
            is_campaign = is_there(directory / DATABASE)
            if not is_campaign and not bucket_folders(directory):
                raise UserError(
                    mismatch(directory, f"a campaign ({DATABASE}) or a corpus", "neither")
                )
        found.append(Source(len(found), directory, is_campaign))
    return found


def _stat(path: Path) -> tuple[str, int, int]:
    try:
        seen = path.stat()
    except OSError:
        return path.name, 0, 0
    return path.name, seen.st_mtime_ns, seen.st_size
