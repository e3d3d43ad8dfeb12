"""What a campaign's database says, checked: rows may be anybody's. Raises StoreError, one sentence
that names the database, the table, the row and the column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Connection, inspect, text

from attnfuzz.corpus.bucket import Bucket, bucket_from_data
from attnfuzz.corpus.models import validated
from attnfuzz.corpus.store.rows import CampaignRow, CountRow, EnvironmentRow, FailureRow, VariantRow
from attnfuzz.corpus.store.schema import METADATA, NEWER, StoreError
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import ProgramError

Read = TypeVar("Read")


def examine(connection: Connection, path: Path) -> None:
    """Raises StoreError where the tables are not those of a campaign: a view or a trigger would be
    executed by whoever reads or writes."""
    found = connection.execute(text("SELECT type, name, tbl_name, sql FROM sqlite_master"))
    for sort, name, table, sql in found:
        expected = sort in ("table", "index") and table in METADATA.tables
        if not expected or str(sql or "").upper().startswith("CREATE VIRTUAL"):
            got = f"{sort} {name!r}"
            raise StoreError(mismatch(path, "the tables of a campaign only", got))
    looked_at = inspect(connection)
    for name, table in METADATA.tables.items():
        if not looked_at.has_table(name):
            if name in NEWER:
                continue
            raise StoreError(mismatch(path, f"a table {name}", "none"))
        there = {column["name"]: column for column in looked_at.get_columns(name)}
        for column in table.columns:
            if column.name not in there:
                raise StoreError(mismatch(f"{path}: {name}", f"a column {column.name}", "none"))
            if "computed" in there[column.name]:
                where = f"{path}: {name}: {column.name}"
                raise StoreError(mismatch(where, "data", "a formula"))
    lost = connection.execute(
        text(
            "SELECT number, bucket FROM failures WHERE bucket IS NOT NULL"
            " AND bucket NOT IN (SELECT id FROM buckets) LIMIT 1"
        )
    ).first()
    if lost is not None:
        where = f"{path}: failures: row {lost[0]!r:.20}: bucket"
        raise StoreError(mismatch(where, "a bucket of the table buckets", f"{lost[1]!r:.40}"))


def row_of(record: type[Read], row: Mapping[Any, Any], path: Path, number: object) -> Read:
    """`row` as one of the records in `rows`; `number` names it."""
    table, adapter = _READERS[record]
    try:
        read: Read = validated(adapter, dict(row), f"{path}: {table}: row {number!r:.40}")
    except ProgramError as error:
        raise StoreError(str(error)) from None
    return read


_READERS: dict[type, tuple[str, TypeAdapter[Any]]] = {
    record: (table, TypeAdapter(record))
    for table, record in (
        ("campaign", CampaignRow),
        ("counts", CountRow),
        ("environments", EnvironmentRow),
        ("failures", FailureRow),
        ("variants", VariantRow),
    )
}


def bucket_row(name: str, data: Any, path: Path) -> Bucket:
    """The bucket of a row of `buckets`, whose id is `name`."""
    where = f"{path}: buckets: row {name!r:.40}"
    try:
        bucket = bucket_from_data(data, where)
    except ProgramError as error:
        raise StoreError(str(error)) from None
    if bucket.id != name:
        raise StoreError(mismatch(f"{where}: data: id", "that of the row", bucket.id))
    return bucket
