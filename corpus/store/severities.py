"""How bad each failure is: written down when it is recorded, and again when it is minimized, so
that a list of thousands of buckets need not read their programs. What an older version has not
written down is computed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter
from sqlalchemy import Connection, and_, func, inspect, literal_column, select

from attnfuzz.corpus.models import validated
from attnfuzz.corpus.severity import RULES, severity
from attnfuzz.corpus.store.rows import KEPT, FailureRow
from attnfuzz.corpus.store.schema import FAILURES, SEVERITIES, StoreError, upsert
from attnfuzz.corpus.store.stored import row_of
from attnfuzz.generators.model.outcome import Failure
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.files import ProgramError

AT_ONCE = 500
"""Rows asked for by number in one query."""

_MOST = 999
"""More strangeness than any program has."""

_BOTH = FAILURES.outerjoin(
    SEVERITIES, and_(SEVERITIES.c.number == FAILURES.c.number, SEVERITIES.c.rules == RULES)
)


@dataclass(frozen=True)
class Scored:
    """A severity's `score`, 0 to 100, and the `strangeness` of the program that it is of."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=False)
    score: Annotated[int, Field(strict=True, ge=0, le=100)] = 0
    strangeness: Annotated[int, Field(strict=True, ge=0, le=_MOST)] = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts the worst first, and of those as bad that of the most ordinary program."""
        return -self.score, self.strangeness


def scored(program: Program, failure: Failure) -> Scored:
    """That of `failure` of `program`."""
    found = severity(failure, program)
    return Scored(found.score, min(found.strangeness, _MOST))


def severity_row(number: int, of: Scored) -> dict[str, Any]:
    """The row of the failure with that number."""
    return {"number": number, **vars(of), "rules": RULES}


def record_severity(
    connection: Connection, number: int, program: Program, failure: Failure
) -> None:
    """Writes down how bad the failure with that number is; `program` is its simplest so far."""
    upsert(connection, SEVERITIES, severity_row(number, scored(program, failure)), ("number",))


def severities(connection: Connection, path: Path, numbers: Collection[int]) -> dict[int, Scored]:
    """Those of the failures with these numbers. Raises StoreError."""
    found = dict[int, Scored]()
    if has_table(connection):
        query = select(FAILURES.c.number, SEVERITIES.c.score, SEVERITIES.c.strangeness)
        for some in in_parts(numbers):
            these = FAILURES.c.number.in_(some) & SEVERITIES.c.number.is_not(None)
            for number, *written in connection.execute(query.select_from(_BOTH).where(these)):
                found[number] = _read(written, path, number)
    return found | _computed(connection, path, set(numbers) - set(found))


def worst_kept(connection: Connection, path: Path) -> dict[str, Scored]:
    """For each bucket the worst of its failures that were minimized. Raises StoreError."""
    # "+": so that SQLite goes by the index of what is listed, which has all that is asked for
    kept = literal_column("+failures.state").in_(sorted(KEPT)) & FAILURES.c.bucket.is_not(None)
    lacking = select(FAILURES.c.number, FAILURES.c.bucket).where(kept)
    found = dict[str, Scored]()
    if has_table(connection):
        # SQLite takes the other columns from the row that has the greatest of these
        worst = func.max(SEVERITIES.c.score * (_MOST + 1) - SEVERITIES.c.strangeness)
        missing = func.count() - func.count(SEVERITIES.c.number)
        columns = (worst, missing, SEVERITIES.c.score, SEVERITIES.c.strangeness)
        query = select(FAILURES.c.bucket, *columns).select_from(_BOTH).where(kept)
        not_written = 0
        for bucket, there, left, *written in connection.execute(query.group_by(FAILURES.c.bucket)):
            not_written += left
            if there is not None:
                found[bucket] = _read(written, path, f"of bucket {bucket}")
        if not not_written:
            return found
        lacking = lacking.select_from(_BOTH).where(SEVERITIES.c.number.is_(None))
    buckets: dict[int, str] = dict(map(tuple, connection.execute(lacking)))
    for number, one in _computed(connection, path, buckets).items():
        before = found.get(buckets[number])
        if before is None or one.rank < before.rank:
            found[buckets[number]] = one
    return found


def has_table(connection: Connection) -> bool:
    """Whether the database is of a version that writes severities down."""
    return inspect(connection).has_table(SEVERITIES.name)


def in_parts(numbers: Collection[int]) -> Iterator[list[int]]:
    """`numbers`, sorted, at most `AT_ONCE` at a time."""
    some = sorted(numbers)
    yield from (some[start : start + AT_ONCE] for start in range(0, len(some), AT_ONCE))


def _computed(connection: Connection, path: Path, numbers: Collection[int]) -> dict[int, Scored]:
    found = dict[int, Scored]()
    for some in in_parts(numbers):
        query = select(FAILURES).where(FAILURES.c.number.in_(some))
        for row in connection.execute(query).mappings():
            one = row_of(FailureRow, row, path, row["number"])
            found[one.number] = scored(*one.simplest)
    return found


def _read(written: list[Any], path: Path, which: object) -> Scored:
    score, strangeness = written
    data = {"score": score, "strangeness": strangeness}
    try:
        return validated(_SCORED, data, f"{path}: severities: row {str(which):.40}")
    except ProgramError as error:
        raise StoreError(str(error)) from None


_SCORED = TypeAdapter(Scored)
