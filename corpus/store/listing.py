"""What is listed of a campaign: buckets with their counts, a page of its failures, its shards.

A list of 100,000 failures must not read 100,000 programs: what is counted and selected by is in one
index of the database, and only the rows that are shown are read.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter
from sqlalchemy import Connection, case, func, select

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.models import Count, Hex, ProgramId, Text, validated
from attnfuzz.corpus.store.rows import KEPT, State
from attnfuzz.corpus.store.schema import BUCKETS, FAILURES, SHARDS, StoreError
from attnfuzz.corpus.store.severities import Scored, in_parts, severities, worst_kept
from attnfuzz.corpus.store.stored import bucket_row
from attnfuzz.generators.reading.files import ProgramError

Read = TypeVar("Read")

_CHECKED = ConfigDict(extra="forbid", strict=False)
_Number = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


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


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A campaign's `buckets`, in the order in which their first failures were recorded, and its
    failures in groups, by bucket."""

    buckets: list[Bucket]
    groups: dict[str | None, list[Group]]

    def occurrences(self, by_key: Mapping[str, int]) -> dict[str, int]:
        """How often each bucket was seen: its failures, and those of its key that were counted only
        (given to the first bucket of that key); `by_key` counts all failures by key."""
        recorded: dict[str, int] = defaultdict(int)
        seen = dict.fromkeys((bucket.id for bucket in self.buckets), 0)
        for name, some in self.groups.items():
            for group in some:
                recorded[group.strong] += group.from_shards
                if name is not None:
                    seen[name] += group.from_shards
        owner: dict[str, str] = {}
        for bucket in self.buckets:
            owner.setdefault(bucket.strong, bucket.id)
        for strong, count in by_key.items():
            if strong in owner:
                seen[owner[strong]] += max(0, count - recorded[strong])
        return seen


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What is listed of a campaign's buckets. `speaking` is for each bucket the failure that speaks
    for it, where it has one, and `severity` how bad the bucket is: as the worst of its failures
    that were minimized, or else as that one."""

    counted: Counted
    speaking: dict[str, Listed]
    severity: dict[str, Scored]


@dataclass(frozen=True)
class Page:
    """Some of the failures that were asked for, and how many there are."""

    total: int
    rows: list[Listed] = field(default_factory=list)


def counted(connection: Connection, path: Path) -> Counted:
    """All buckets and failures. Raises StoreError."""
    found = connection.execute(select(BUCKETS.c.id, BUCKETS.c.data))
    buckets = [bucket_row(name, data, path) for name, data in found]
    of_bucket: dict[str | None, list[Group]] = {bucket.id: [] for bucket in buckets}
    for group in groups(connection, path):
        if group.bucket is not None and group.bucket not in of_bucket:
            raise StoreError(f"{path}: failures: the file is damaged")  # its index disagrees
        of_bucket.setdefault(group.bucket, []).append(group)
    buckets.sort(key=lambda one: (_first(of_bucket[one.id]), one.id))
    return Counted(buckets=buckets, groups=of_bucket)


def overview(connection: Connection, path: Path) -> Overview:
    """All buckets and what is listed of them. Raises StoreError."""
    whole = counted(connection, path)
    speak = {one.id: speaks(of).first for one in whole.buckets if (of := whole.groups[one.id])}
    by_number = {row.number: row for row in listed(connection, path, speak.values())}
    bad = worst_kept(connection, path)
    others = {name: number for name, number in speak.items() if name not in bad}
    rest = severities(connection, path, others.values())
    return Overview(
        counted=whole,
        speaking={name: by_number[number] for name, number in speak.items()},
        severity=bad | {name: rest[number] for name, number in others.items()},
    )


def _first(of: Sequence[Group]) -> int:
    return min((group.first for group in of), default=sys.maxsize)


def groups(connection: Connection, path: Path) -> list[Group]:
    """All failures, counted. Raises StoreError."""
    keys = (FAILURES.c.bucket, FAILURES.c.strong, FAILURES.c.state)
    from_shards = func.sum(case((FAILURES.c.shard.is_(None), 0), else_=1)).label("from_shards")
    counts = (func.count().label("count"), from_shards, func.min(FAILURES.c.number).label("first"))
    rows = connection.execute(select(*keys, *counts).group_by(*keys).order_by(*keys)).mappings()
    return _checked(_GROUPS, rows, path, "failures", "first")


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
    found = list[Listed]()
    for some in in_parts(numbers):
        these = FAILURES.c.number.in_(some)
        found += _checked(
            _LISTED,
            connection.execute(select(*columns).where(these)).mappings(),
            path,
            "failures",
            "number",
        )
    return found


def shards(connection: Connection, path: Path) -> list[ShardTimes]:
    """What each shard took, by index. Raises StoreError."""
    times = ("cpu_s", "wall_s", "harness_cpu_s")
    columns = [func.json_extract(SHARDS.c.report, f"$.{name}").label(name) for name in times]
    query = select(SHARDS.c.index, SHARDS.c.executed, *columns).order_by(SHARDS.c.index)
    return _checked(_SHARDS, connection.execute(query).mappings(), path, "shards", "index")


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
    return min(of, key=lambda group: (group.state not in KEPT, group.first))


def _checked(
    adapter: TypeAdapter[list[Read]], rows: Any, path: Path, table: str, named: str
) -> list[Read]:
    """`rows` as records; the column `named` names a row that is none."""
    found = [dict(row) for row in rows]
    try:
        return validated(adapter, found, f"{path}: {table}")
    except ProgramError as error:
        told = str(error)
    for row in found:
        where = f"{path}: {table}: row {row[named]!r:.40}"
        try:
            validated(adapter, [row], where)
        except ProgramError as error:
            told = str(error).replace(f"{where}: [0].", f"{where}: ", 1)
            break
    raise StoreError(told)


_GROUPS = TypeAdapter(list[Group])
_LISTED = TypeAdapter(list[Listed])
_SHARDS = TypeAdapter(list[ShardTimes])
_FIRST = TypeAdapter(dict[Hex, Count], config={"strict": True})
