"""Failures as they are read, whichever version of the tables they are in."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, inspect, select

from attnfuzz.corpus.store.rows import FailureRow
from attnfuzz.corpus.store.schema import FAILURES, HARDWARE
from attnfuzz.corpus.store.stored import row_of


@cache
def _has_hardware(engine: Engine) -> bool:
    """Whether the tables are of a version that has it: looked up once, as rows are read often."""
    return inspect(engine).has_table(HARDWARE.name)


def failure_rows(connection: Connection, path: Path, *conditions: Any) -> list[FailureRow]:
    """Those that meet the conditions, in the order they were recorded. Raises StoreError."""
    query = select(FAILURES)
    if _has_hardware(connection.engine):
        same = HARDWARE.c.number == FAILURES.c.number
        query = select(FAILURES, HARDWARE.c.hardware).outerjoin(HARDWARE, same)
    rows = connection.execute(query.where(*conditions).order_by(FAILURES.c.number)).mappings()
    return [row_of(FailureRow, row, path, row["number"]) for row in rows]
