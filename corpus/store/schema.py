"""The store's tables, and the one way to reach them: durable, and understandable when it fails."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import (
    JSON,
    URL,
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
)
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.exc import DBAPIError

from attnfuzz.generators.reading.complaints import located, mismatch
from attnfuzz.generators.reading.safe_yaml import MAX_DIGITS

VERSION = 6
"""Of the tables below, in the database's `user_version`."""

READABLE = (2, 3, 4, 5, VERSION)
"""Version 2 lacks `environments`, 2 and 3 lack `progress`, 2 to 4 `severities`, and all four
`hardware`."""

LOCK_WAIT_S = 30

MAX_CELL = 32 << 20
"""Bytes of one cell: what we write is far smaller."""

METADATA = MetaData()

CAMPAIGN = Table(
    "campaign",
    METADATA,
    Column("one", Integer, primary_key=True),
    Column("seed", Integer, nullable=False),
    Column("config", JSON, nullable=False),
    Column("versions", JSON, nullable=False),
)

# What the failures ran with whose number is at least `first`, until the next.
ENVIRONMENTS = Table(
    "environments",
    METADATA,
    Column("first", Integer, primary_key=True, autoincrement=False),
    Column("versions", JSON, nullable=False),
)

SHARDS = Table(
    "shards",
    METADATA,
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("executed", Integer, nullable=False),
    Column("report", JSON, nullable=False),
)

# Sums over the shards, kept so that totals cost the same after a million programs.
COUNTS = Table(
    "counts",
    METADATA,
    Column("sort", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("value", Float, nullable=False),
)

BUCKETS = Table(
    "buckets",
    METADATA,
    Column("id", String, primary_key=True),
    Column("strong", String, nullable=False, index=True),
    Column("data", JSON, nullable=False),
)

FAILURES = Table(
    "failures",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("program_id", String, nullable=False, unique=True),
    Column("program", JSON, nullable=False),
    Column("outcome", JSON, nullable=False),
    Column("strong", String, nullable=False, index=True),
    Column("shard", Integer),
    Column("target", String, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("runs", Integer, nullable=False, default=0),
    Column("failures", Integer, nullable=False, default=0),
    Column("bucket", String, ForeignKey("buckets.id"), index=True),
    Column("best", JSON(none_as_null=True)),
    Column("best_outcome", JSON(none_as_null=True)),
    Column("evaluated", Integer, nullable=False, default=0),
)

# What is listed of failures: without it, each list would read every program and outcome.
LISTED = Index(
    "ix_failures_listed", *(FAILURES.c[name] for name in ("bucket", "strong", "state", "shard"))
)

# The campaign at one moment, every few seconds: see `progress.Progress`.
PROGRESS = Table(
    "progress",
    METADATA,
    Column("number", Integer, primary_key=True),
    *(Column(name, Float, nullable=False) for name in ("at", "elapsed_s", "cpu")),
    *(Column(name, Float, nullable=False) for name in ("finding_s", "investigating_s")),
    *(Column(name, Integer, nullable=False) for name in ("executed", "failed", "buckets")),
    *(Column(name, Integer, nullable=False) for name in ("pending", "workers", "busy")),
)

# How bad a failure is by `rules`, of its simplest program: see `severities`.
SEVERITIES = Table(
    "severities",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("score", Integer, nullable=False),
    Column("strangeness", Integer, nullable=False),
    Column("rules", Integer, nullable=False),
)

# What the worker of a failure had that others of its target may not have; no row: nothing.
HARDWARE = Table(
    "hardware",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("hardware", String, nullable=False),
)

NEWER = frozenset({ENVIRONMENTS.name, PROGRESS.name, SEVERITIES.name, HARDWARE.name})
"""Tables that older databases lack."""

VARIANTS = Table(
    "variants",
    METADATA,
    Column("program_id", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("result", String, nullable=False),
)


class StoreError(Exception):
    """The store cannot be read or written; one sentence. What was saved before is whole."""


def loads(value: Any) -> Any:
    """What the JSON in a column says; where it is none, the text itself, which no model accepts."""
    try:
        return json.loads(value, parse_int=_integer, parse_constant=_no_number)
    except (ValueError, TypeError, RecursionError):
        return str(value)[:100]


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(mismatch("", f"an integer of at most {MAX_DIGITS} digits"))
    return int(digits)


def _no_number(name: str) -> NoReturn:
    raise ValueError(mismatch("", "a finite number", name))


def connect(path: Path) -> Engine:
    """An engine on the database at `path`: WAL, or a rollback journal where that would need memory
    that machines do not share; and on disk before a transaction is said to be done."""
    journal = "TRUNCATE" if is_on_network(path) else "WAL"
    engine = create_engine(
        URL.create("sqlite", database=str(path)),  # not as text: a path may hold a "?"
        connect_args={"timeout": LOCK_WAIT_S},
        json_deserializer=loads,
    )

    @event.listens_for(engine, "connect")
    def configure(dbapi: Any, record: Any) -> None:
        dbapi.isolation_level = None  # transactions begin below, not where sqlite3 thinks
        for pragma in (f"journal_mode={journal}", "synchronous=FULL", "foreign_keys=ON"):
            dbapi.execute(f"PRAGMA {pragma}").fetchall()

    begins(engine)
    return engine


NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "beegfs", "9p", "afs")


def is_on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether the disk of `path` may be another machine's too, as far as its type says: one that is
    mounted by a program of its own (FUSE) may."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return False
    whole = str(path.absolute().resolve())
    inside = [
        (len(point), kind)
        for _, point, kind, *_ in lines
        if whole == point or whole.startswith(point.rstrip("/") + "/")
    ]
    kind = max(inside, default=(0, ""))[1]
    return kind in NETWORK or kind.startswith("fuse.")


def begins(engine: Engine) -> None:
    """Has SQLAlchemy begin each transaction where it is meant to begin, and takes whatever a
    connection reads for anybody's."""

    @event.listens_for(engine, "connect")
    def distrust(dbapi: Any, record: Any) -> None:
        dbapi.text_factory = lambda raw: raw.decode("utf-8", "replace")
        dbapi.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL)
        dbapi.execute("PRAGMA trusted_schema=OFF").fetchall()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its lock at once: an upgrade in the middle could only fail.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def prepare(engine: Engine, path: Path) -> None:
    """Make the tables where they are missing; StoreError for a database of another version."""
    with transaction(engine, path, writes=False) as connection:
        found = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        empty = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one() == 0
    if found == VERSION:
        return
    if not empty and found not in READABLE:
        raise StoreError(mismatch(path, f"a campaign of version {VERSION}", f"version {found}"))
    with transaction(engine, path, writes=True) as connection:
        METADATA.create_all(connection)
        LISTED.create(connection, checkfirst=True)
        connection.exec_driver_sql(f"PRAGMA user_version={VERSION}")


@contextmanager
def transaction(engine: Engine, path: Path, *, writes: bool) -> Iterator[Connection]:
    """All or nothing; a database that refuses becomes a StoreError."""
    try:
        with (
            engine.connect().execution_options(writes=writes) as connection,
            connection.begin(),
        ):
            yield connection
    except DBAPIError as error:
        raise StoreError(_sentence(path, error)) from error
    except UnicodeDecodeError as error:  # of SQLite's own message, which quotes what it met
        raise StoreError(f"{path}: the file is damaged") from error


def _adding() -> Insert:
    query = insert(COUNTS)
    total = COUNTS.c.value + query.excluded.value
    return query.on_conflict_do_update(["sort", "name"], set_={"value": total})


_ADD = _adding()
"""Made once: building it costs more than running it."""


def add_counts(connection: Connection, sort: str, values: Mapping[str, float]) -> None:
    """Adds to the sums of one sort, by name."""
    rows = [{"sort": sort, "name": name, "value": value} for name, value in values.items()]
    if rows:
        connection.execute(_ADD, rows)


def keep_most(connection: Connection, sort: str, values: Mapping[str, float]) -> None:
    """Keeps of each name the larger value, of what is recorded and of `values`."""
    query = insert(COUNTS)
    most = func.max(COUNTS.c.value, query.excluded.value)
    query = query.on_conflict_do_update(["sort", "name"], set_={"value": most})
    rows = [{"sort": sort, "name": name, "value": value} for name, value in values.items()]
    if rows:
        connection.execute(query, rows)


def upsert(
    connection: Connection, table: Table, values: Mapping[str, Any], key: Sequence[str]
) -> None:
    """Writes a row, in the place of one with the same `key`."""
    query = insert(table).values(values)
    rest = {name: query.excluded[name] for name in values if name not in key}
    connection.execute(query.on_conflict_do_update(key, set_=rest))


A_CAMPAIGN = "a campaign's database"
"""What a path should lead to."""

_CAUSES = (
    ("disk is full", "the disk is full; what was saved before is whole"),
    ("disk I/O error", "the disk refused to read or write; what was saved before is whole"),
    ("readonly database", "it cannot be written to"),
    ("unable to open", "it cannot be opened or created there"),
    ("locked", "another process has been writing to it for too long"),
    ("not a database", mismatch("", A_CAMPAIGN, "another file")),
    ("malformed", "the file is damaged"),
    ("too big", mismatch("", f"cells of at most {MAX_CELL} bytes", "more")),
)


def _sentence(path: Path, error: DBAPIError) -> str:
    text = str(error.orig)
    return located(path, next((sentence for cause, sentence in _CAUSES if cause in text), text))
