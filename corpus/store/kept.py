"""What shards have shown: programs that were kept for it, those that shards of mutants are made of,
and how much was new. The rows of shards have it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass
from sqlalchemy import Connection, func, select

from attnfuzz.corpus.models import Count, Line, Text, validated
from attnfuzz.corpus.store.rows import ValidProgram
from attnfuzz.corpus.store.schema import SHARDS, StoreError, loads
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.files import ProgramError


@dataclass(frozen=True)
class KeptRow:
    """A program, and what it was the first of its worker to show."""

    program: ValidProgram
    shows: Annotated[tuple[Line, ...], Field(max_length=10_000)]


Read = TypeVar("Read")

_YIELDS = TypeAdapter(list[tuple[Count, Annotated[float, Field(ge=0, allow_inf_nan=False)], Count]])
_TARGET: TypeAdapter[str] = TypeAdapter(Text)
_KEPT = TypeAdapter(list[KeptRow])
_PROGRAMS = TypeAdapter(list[ValidProgram])


def kept_programs(connection: Connection, path: Path) -> list[tuple[str, KeptRow]]:
    """Those that were kept, each with the target that it ran on, by shard. Raises StoreError."""
    column = func.json_extract(SHARDS.c.report, "$.kept").label("kept")
    target = func.json_extract(SHARDS.c.report, "$.target").label("target")
    query = select(SHARDS.c.index, column, target).where(func.json_array_length(column) > 0)
    found: list[tuple[str, KeptRow]] = []
    for index, text, where in connection.execute(query.order_by(SHARDS.c.index)):
        found += [(str(where), one) for one in _read(_KEPT, text, f"{path}: shards: row {index}")]
    return found


def parents_of(connection: Connection, path: Path, index: int) -> list[Program]:
    """What the shard of that number is made of; nothing where it was drawn. Raises StoreError."""
    column = func.json_extract(SHARDS.c.report, "$.parents")
    text = connection.execute(select(column).where(SHARDS.c.index == index)).scalar()
    return [] if text is None else _read(_PROGRAMS, text, f"{path}: shards: row {index}")


def target_of_shard(connection: Connection, path: Path, index: int) -> str:
    """The target that the shard of that number ran on. Raises StoreError."""
    column = func.json_extract(SHARDS.c.report, "$.target")
    found = connection.execute(select(column).where(SHARDS.c.index == index)).scalar()
    return _checked(_TARGET, found, f"{path}: shards: row {index}: target")


def shard_yields(connection: Connection, path: Path) -> list[tuple[int, float, int]]:
    """Of each shard that was run its number, the CPU seconds that it took, and how much in it was
    new; by its number. One that was lost with its worker shows nothing. Raises StoreError."""
    paths = ("cpu_s", "harness_cpu_s", "novel")
    columns = [func.coalesce(func.json_extract(SHARDS.c.report, f"$.{one}"), 0) for one in paths]
    query = select(SHARDS.c.index, columns[0] + columns[1], columns[2]).order_by(SHARDS.c.index)
    query = query.where(func.json_extract(SHARDS.c.report, "$.executed") > 0)
    found = [list(row) for row in connection.execute(query)]
    return _checked(_YIELDS, found, f"{path}: shards")


def _read(adapter: TypeAdapter[Read], text: str, where: str) -> Read:
    return _checked(adapter, loads(text), where)


def _checked(adapter: TypeAdapter[Read], data: Any, where: str) -> Read:
    try:
        return validated(adapter, data, where)
    except ProgramError as error:
        raise StoreError(str(error)) from None
