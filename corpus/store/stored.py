"""What a campaign's database says, checked: rows may be anybody's. Raises StoreError, one sentence
that names the database, the table, the row and the column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import Connection, RowMapping, inspect, text

from attnfuzz.corpus import models
from attnfuzz.corpus.bucket import Bucket, bucket_from_data
from attnfuzz.corpus.models import checked
from attnfuzz.corpus.store.rows import FailureRow, State
from attnfuzz.corpus.store.schema import ENVIRONMENTS, METADATA, StoreError
from attnfuzz.generators.model.codec import from_data, outcome_from_data, program_id
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import ProgramError

Checked = TypeVar("Checked", bound=BaseModel)


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
            if table is ENVIRONMENTS:
                continue  # version 2 has none
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


def row_of(model: type[Checked], row: Mapping[Any, Any], path: Path, number: object) -> Checked:
    """`row` as `model`; `number` names it."""
    table = _TABLES[model]
    try:
        return checked(model, dict(row), f"{path}: {table}: row {number!r:.40}")
    except ProgramError as error:
        raise StoreError(str(error)) from None


_TABLES: dict[type[BaseModel], str] = {
    models.CampaignRow: "campaign",
    models.CountRow: "counts",
    models.EnvironmentRow: "environments",
    models.VariantRow: "variants",
    models.FailureRow: "failures",
}


def failure_row(row: RowMapping, path: Path) -> FailureRow:
    """A row of `failures`."""
    read = row_of(models.FailureRow, row, path, row["number"])
    where = f"{path}: failures: row {read.number}"
    try:
        program = _program(read.program, f"{where}: program")
        outcome = _failed(read.outcome, f"{where}: outcome")
        if (read.best is None) != (read.best_outcome is None):
            raise ProgramError(mismatch(f"{where}: best", "it where there is a best_outcome, only"))
        best = None if read.best is None else _program(read.best, f"{where}: best")
        last = read.best_outcome
        best_outcome = None if last is None else _failed(last, f"{where}: best_outcome")
        if program_id(program) != read.program_id:
            there = f"{where}: program_id"
            raise ProgramError(mismatch(there, program_id(program), read.program_id))
    except ProgramError as error:
        raise StoreError(str(error)) from None
    plain = read.model_dump(exclude={"program", "outcome", "best", "best_outcome", "state"})
    return FailureRow(
        program=program,
        outcome=outcome,
        best=best,
        best_outcome=best_outcome,
        state=State(read.state),
        **plain,
    )


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


def _program(data: Any, where: str) -> Program:
    program = from_data(data, where)
    for problem in problems(program):
        raise ProgramError(f"{where}: {problem.key}: {problem.sentence}")
    return program


def _failed(data: Any, where: str) -> Outcome:
    outcome = outcome_from_data(data, where)
    if outcome.failure is None:
        raise ProgramError(mismatch(f"{where}: failure", "what failed", "none"))
    return outcome
