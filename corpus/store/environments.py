"""Which versions a campaign ran with, and from which failure on: it may have been resumed since."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection, func, inspect, select

from attnfuzz.corpus.store.rows import EnvironmentRow
from attnfuzz.corpus.store.schema import CAMPAIGN, ENVIRONMENTS, FAILURES
from attnfuzz.corpus.store.stored import row_of


def record_environment(connection: Connection, versions: Mapping[str, str]) -> None:
    """Failures from now on ran with `versions`. To be called before the campaign's row gets them:
    that of a campaign of version 2 has those of the failures so far."""
    last = _last(connection, None)
    before = connection.execute(select(CAMPAIGN.c.versions)).scalars().first()
    if last is None and before is not None:
        connection.execute(ENVIRONMENTS.insert().values(first=0, versions=before))
        last = before
    if last != dict(versions):
        most = connection.execute(select(func.max(FAILURES.c.number))).scalar_one() or 0
        again = ENVIRONMENTS.delete().where(ENVIRONMENTS.c.first == most + 1)  # nothing failed
        connection.execute(again)
        row = {"first": most + 1, "versions": dict(versions)}
        connection.execute(ENVIRONMENTS.insert().values(row))


def environment_of(connection: Connection, number: int, path: Path) -> dict[str, str]:
    """What the failure with that number was found with, in the database at `path`. Raises
    StoreError."""
    there = inspect(connection).has_table(ENVIRONMENTS.name)
    found = _last(connection, number) if there else None
    if found is None:
        found = connection.execute(select(CAMPAIGN.c.versions)).scalars().first()
    row = {"first": number, "versions": found or {}}
    return row_of(EnvironmentRow, row, path, number).versions


def _last(connection: Connection, number: int | None) -> dict[str, str] | None:
    """Those of the failure with that number, or the latest of all."""
    query = select(ENVIRONMENTS.c.versions).order_by(ENVIRONMENTS.c.first.desc()).limit(1)
    if number is not None:
        query = query.where(ENVIRONMENTS.c.first <= number)
    found: dict[str, str] | None = connection.execute(query).scalar_one_or_none()
    return found
