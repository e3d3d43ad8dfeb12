"""How a campaign went on: what it had done at moments a few seconds apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter
from sqlalchemy import Connection, inspect, select

from attnfuzz.corpus.models import Count, validated
from attnfuzz.corpus.store.schema import PROGRESS, StoreError
from attnfuzz.generators.reading.files import ProgramError

_Number = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A campaign at one moment: `at` in seconds since 1970, `elapsed_s` since this run of it began,
    `cpu` the share of the machine's CPU time in use. `finding_s` and `investigating_s` are seconds
    that this run's workers were busy with new programs and with what had failed. The rest are
    counts."""

    __pydantic_config__ = ConfigDict(extra="ignore", strict=False)
    at: _Number
    elapsed_s: _Number
    cpu: _Number
    finding_s: _Number
    investigating_s: _Number
    executed: Count
    failed: Count
    buckets: Count
    pending: Count
    workers: Count
    busy: Count


def record_progress(connection: Connection, now: Progress) -> None:
    """Writes down one moment."""
    connection.execute(PROGRESS.insert().values(asdict(now)))


def progress_of(connection: Connection, path: Path) -> list[Progress]:
    """The moments written down in the database at `path`, in order; none by older versions. Raises
    StoreError."""
    if not inspect(connection).has_table(PROGRESS.name):
        return []
    rows = connection.execute(select(PROGRESS).order_by(PROGRESS.c.number)).mappings()
    try:
        return validated(_MOMENTS, [dict(row) for row in rows], f"{path}: progress")
    except ProgramError as error:
        raise StoreError(str(error)) from None


_MOMENTS = TypeAdapter(list[Progress])
