"""Opening a store: to write, or so that neither the database nor a file beside it is changed.

SQLite keeps what was committed last in a log beside the database, and a reader of that log writes
too, into an index that is shared. So who only reads has three cases:

- The campaign is running: its log and index are there, and are read as SQLite has it.
- It has ended: there is no log, and the database is opened as one that nobody changes.
- It was killed: the log must be read and nobody keeps its index, so that a copy is read.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path

from sqlalchemy import Engine, QueuePool, create_engine

from attnfuzz.corpus.store.schema import (
    A_CAMPAIGN,
    LOCK_WAIT_S,
    READABLE,
    StoreError,
    begins,
    connect,
    loads,
    prepare,
    transaction,
)
from attnfuzz.corpus.store.stored import examine
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import ProgramError, regular_or_missing

LOCK = "campaign.lock"
"""Beside the database; a running campaign holds it."""

_ATTEMPTS = 5

MAX_COPY = 8 << 30
"""Bytes that are copied to read what a killed campaign has left."""


def regular(path: Path) -> None:
    """Raises StoreError where the database at `path` or a file of SQLite's beside it is no regular
    file: it would follow a link, and wait for whoever writes to a pipe."""
    try:
        for suffix in ("", "-wal", "-shm", "-journal"):
            regular_or_missing(path.with_name(path.name + suffix))
    except ProgramError as error:
        raise StoreError(str(error)) from None


class Writing:
    """An engine on the database at `path`, made where it is missing. Raises StoreError."""

    def __init__(self, path: Path) -> None:
        regular(path)
        self.engine = connect(path)
        prepare(self.engine, path)
        with transaction(self.engine, path, writes=False) as connection:
            examine(connection, path)

    def close(self) -> None:
        """Closes the connections to the database."""
        self.engine.dispose()


class Reading:
    """An engine on the database at `path`, which is not changed. Raises StoreError."""

    def __init__(self, path: Path) -> None:
        self._copied: tempfile.TemporaryDirectory[str] | None = None
        self._path = path
        regular(path)
        self.engine = self._open()
        try:
            _check(self.engine, path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connections, and removes the copy that was read, if one was made."""
        self.engine.dispose()
        if self._copied is not None:
            self._copied.cleanup()

    def _open(self) -> Engine:
        path = self._path
        if not path.is_file():
            raise StoreError(f"{mismatch(path, A_CAMPAIGN)}, found no such file")
        try:
            if path.stat().st_size == 0:
                raise StoreError(mismatch(path, A_CAMPAIGN, "an empty file"))
            if is_running(path.with_name(LOCK)):
                return _engine(path, "mode=ro")
            if _log_size(path) == 0:
                return _engine(path, "immutable=1")
            return _engine(self._copy(), "mode=ro")
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error

    def _copy(self) -> Path:
        """A copy of the database and its log, of one moment. Raises OSError, and StoreError where
        they are larger than `MAX_COPY`."""
        if sum(size for _, size in _state(self._path)) > MAX_COPY:
            most = f"at most {MAX_COPY} bytes of it and its log"
            raise StoreError(mismatch(self._path, most, "more"))
        self._copied = tempfile.TemporaryDirectory(prefix="attnfuzz-read-")
        copy = Path(self._copied.name) / self._path.name
        for _ in range(_ATTEMPTS):
            before = _state(self._path)
            for one in (self._path, _log(self._path)):
                if one.exists():
                    shutil.copyfile(one, copy.with_name(one.name))
            if _state(self._path) == before:
                break
            time.sleep(0.1)  # a campaign has begun to write
        return copy


def _engine(path: Path, how: str) -> Engine:
    uri = f"{path.absolute().as_uri()}?{how}"
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            uri, uri=True, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False
        ),
        poolclass=QueuePool,
        json_deserializer=loads,
    )
    begins(engine)
    return engine


def _check(engine: Engine, path: Path) -> None:
    """StoreError for what is no campaign, or of a version that cannot be read."""
    with transaction(engine, path, writes=False) as connection:
        found = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        empty = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one() == 0
    if empty:
        raise StoreError(mismatch(path, A_CAMPAIGN, "one without a campaign"))
    if found not in READABLE:
        wanted = " or ".join(map(str, READABLE))
        raise StoreError(mismatch(path, f"a campaign of version {wanted}", f"version {found}"))
    with transaction(engine, path, writes=False) as connection:
        examine(connection, path)


def is_running(lock: Path) -> bool:
    """Whether a campaign holds `lock`, the file `LOCK`. Raises OSError where that cannot be found
    out."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _log_size(path: Path) -> int:
    try:
        return _log(path).stat().st_size
    except FileNotFoundError:
        return 0


def _state(path: Path) -> list[tuple[int, int]]:
    there = [one.stat() for one in (path, _log(path)) if one.exists()]
    return [(one.st_mtime_ns, one.st_size) for one in there]
