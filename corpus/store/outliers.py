"""Programs that were stopped as they took far longer than predicted, and what became of them.

The row of their shard has them, and a count of a sort of its own says how each ended: "passed",
"failed", or "of" a bucket that explains it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import TypeAdapter
from sqlalchemy import Connection, func, select

from attnfuzz.corpus.models import validated
from attnfuzz.corpus.store.rows import ValidProgram
from attnfuzz.corpus.store.schema import COUNTS, SHARDS, StoreError, loads
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.files import ProgramError

SORT = "outlier"

_STOPPED = TypeAdapter(list[ValidProgram])


def ended_how(names: Iterable[str]) -> dict[str, int]:
    """How many ended how, told by the names of their counts."""
    ends = (name.partition(" ")[2] for name in names)
    return dict(Counter("of a known cause" if one.startswith("of ") else one for one in ends))


def outliers(connection: Connection, path: Path) -> Sequence[tuple[Program, str]]:
    """The programs that are still to be run, with their targets, by shard. Raises StoreError."""
    ended = select(COUNTS.c.name).where(COUNTS.c.sort == SORT)
    done = {name.partition(" ")[0] for name in connection.execute(ended).scalars()}
    column = func.json_extract(SHARDS.c.report, "$.stopped").label("stopped")
    target = func.json_extract(SHARDS.c.report, "$.target").label("target")
    query = select(SHARDS.c.index, column, target).where(func.json_array_length(column) > 0)
    found: list[tuple[Program, str]] = []
    for index, text, where in connection.execute(query.order_by(SHARDS.c.index)):
        try:
            programs = validated(_STOPPED, loads(text), f"{path}: shards: row {index}: stopped")
        except ProgramError as error:
            raise StoreError(str(error)) from None
        found += [(one, str(where)) for one in programs if program_id(one) not in done]
    return found
