"""What attnfuzz itself did wrong in a campaign: the programs, each with its traceback."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter
from sqlalchemy import Connection, func, select

from attnfuzz.corpus.models import validated
from attnfuzz.corpus.store.schema import SHARDS, StoreError
from attnfuzz.generators.reading.files import ProgramError

_DEFECTS = TypeAdapter(list[tuple[str, str]])


def defects(connection: Connection, path: Path) -> list[str]:
    """One text for each, by shard. Raises StoreError."""
    column = func.json_extract(SHARDS.c.report, "$.defects")
    rows = connection.execute(
        select(SHARDS.c.index, SHARDS.c.report)
        .where(func.json_array_length(column) > 0)
        .order_by(SHARDS.c.index)
    )
    try:
        found = [
            (index, validated(_DEFECTS, report["defects"], f"{path}: shards: row {index}: defects"))
            for index, report in rows
        ]
    except ProgramError as error:
        raise StoreError(str(error)) from None
    return [
        f"shard {index}, program {program or 'unknown'}\n\n{text}"
        for index, here in found
        for program, text in here
    ]
