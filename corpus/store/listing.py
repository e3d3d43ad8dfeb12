"""What is listed of a campaign: buckets with their counts, a page of its failures, its shards.

A list of 100,000 failures must not read 100,000 programs: what is counted and selected by is in one
index of the database, and only the rows that are shown are read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter
from sqlalchemy import Connection, case, func, select

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.models import Count, Hex, ProgramId, Text, validated
from attnfuzz.corpus.store.rows import State
from attnfuzz.corpus.store.schema import BUCKETS, FAILURES, SHARDS, StoreError
from attnfuzz.corpus.store.stored import bucket_row
from attnfuzz.generators.reading.files import ProgramError

_CHECKED = ConfigDict(extra="forbid", strict=False)
_Number = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
_SPEAK = (State.DONE.value, State.MINIMIZED.value)
_AT_ONCE = 500
"""Rows asked for by number in one query."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The failures with one `bucket` (or none), key and state: how many, how many of them
    shards met (the others were met while one was minimized), and the number of the `first`."""

    __pydantic_config__ = _CHECKED
    bucket: Hex | None
    strong: Text
    state: State
    count: Count
    from_shards: Count
    first: Count


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What a list shows of a failure: see `rows.FailureRow`."""

    __pydantic_config__ = _CHECKED
    number: Count
    program_id: ProgramId
    strong: Text
    state: State
    target: Text
    shard: Count | None
    bucket: Hex | None
    runs: Count
    failures: Count


@dataclass(frozen=True, kw_only=True)
class ShardTimes:
    """What a shard took, in seconds, and how many programs it ran."""

    __pydantic_config__ = _CHECKED
    index: Count
    executed: Count
    cpu_s: _Number = 0.0
    wall_s: _Number = 0.0
    harness_cpu_s: _Number = 0.0


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which failures are listed: all, or those of one kind, state, bucket, or of no bucket."""

    kind: str = ""
    state: str = ""
    bucket: str = ""
    unbucketed: bool = False

    def conditions(self) -> list[Any]:
        """As SQL."""
        found: list[Any] = []
        if self.kind:  # "-" is not in a kind, and "." comes after it
            between = FAILURES.c.strong.between(f"{self.kind}-", f"{self.kind}.")
            found.append(between)
        if self.state:
            found.append(FAILURES.c.state == self.state)
        if self.bucket:
            found.append(FAILURES.c.bucket == self.bucket)
        if self.unbucketed:
            found.append(FAILURES.c.bucket.is_(None))
        return found


@dataclass(frozen=True)
class Page:
    """Some of the failures that were asked for, and how many there are."""

    total: int
    rows: list[Listed] = field(default_factory=list)


def buckets(connection: Connection, path: Path) -> list[Bucket]:
    """All buckets, in no particular order. Raises StoreError."""
    found = connection.execute(select(BUCKETS.c.id, BUCKETS.c.data).order_by(BUCKETS.c.id))
    return [bucket_row(name, data, path) for name, data in found]


def groups(connection: Connection, path: Path) -> list[Group]:
    """All failures, counted. Raises StoreError."""
    keys = (FAILURES.c.bucket, FAILURES.c.strong, FAILURES.c.state)
    from_shards = func.sum(case((FAILURES.c.shard.is_(None), 0), else_=1)).label("from_shards")
    counts = (func.count().label("count"), from_shards, func.min(FAILURES.c.number).label("first"))
    rows = connection.execute(select(*keys, *counts).group_by(*keys).order_by(*keys)).mappings()
    return _checked(_GROUPS, rows, path, "failures")


def failures(connection: Connection, path: Path, wanted: Wanted, offset: int, limit: int) -> Page:
    """The failures that are `wanted`, newest first, at most `limit` of them from the one at
    `offset` on. Raises StoreError."""
    query = select(FAILURES.c.number).where(*wanted.conditions())
    numbers = sorted(connection.execute(query).scalars(), reverse=True)
    shown = listed(connection, path, numbers[offset : offset + limit])
    return Page(total=len(numbers), rows=sorted(shown, key=lambda row: -row.number))


def listed(connection: Connection, path: Path, numbers: Collection[int]) -> list[Listed]:
    """The failures with these numbers. Raises StoreError."""
    columns = [FAILURES.c[name] for name in Listed.__dataclass_fields__]
    some, found = sorted(numbers), list[Listed]()
    for start in range(0, len(some), _AT_ONCE):
        these = FAILURES.c.number.in_(some[start : start + _AT_ONCE])
        found += _checked(
            _LISTED, connection.execute(select(*columns).where(these)).mappings(), path, "failures"
        )
    return found


def shards(connection: Connection, path: Path) -> list[ShardTimes]:
    """What each shard took, by index. Raises StoreError."""
    times = ("cpu_s", "wall_s", "harness_cpu_s")
    columns = [func.json_extract(SHARDS.c.report, f"$.{name}").label(name) for name in times]
    query = select(SHARDS.c.index, SHARDS.c.executed, *columns).order_by(SHARDS.c.index)
    return _checked(_SHARDS, connection.execute(query).mappings(), path, "shards")


def first_shards(connection: Connection, path: Path) -> dict[str, int]:
    """For each bucket the least shard that met one of its failures. Raises StoreError."""
    query = select(FAILURES.c.bucket, func.min(FAILURES.c.shard)).where(
        FAILURES.c.bucket.is_not(None), FAILURES.c.shard.is_not(None)
    )
    rows = connection.execute(query.group_by(FAILURES.c.bucket)).all()
    try:
        return validated(_FIRST, dict(map(tuple, rows)), f"{path}: failures")
    except ProgramError as error:
        raise StoreError(str(error)) from None


def speaks(of: Sequence[Group]) -> Group:
    """Of a bucket's groups the one whose first failure speaks for it: that of one minimized, where
    there is one."""
    return min(of, key=lambda group: (group.state not in _SPEAK, group.first))


def _checked(adapter: TypeAdapter[Any], rows: Any, path: Path, table: str) -> Any:
    try:
        return validated(adapter, [dict(row) for row in rows], f"{path}: {table}")
    except ProgramError as error:
        raise StoreError(str(error)) from None


_GROUPS = TypeAdapter(list[Group])
_LISTED = TypeAdapter(list[Listed])
_SHARDS = TypeAdapter(list[ShardTimes])
_FIRST = TypeAdapter(dict[Hex, Count], config={"strict": True})
