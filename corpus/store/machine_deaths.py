"""Machines that died, and which programs they were at: counts of a sort of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection, select

from attnfuzz.corpus.store.rows import CountRow
from attnfuzz.corpus.store.schema import COUNTS, add_counts
from attnfuzz.corpus.store.stored import row_of

SORT = "machine died"

MACHINES_A_PROGRAM = 2
"""Machines that may die while one program runs, before it is set aside."""


def record_death(connection: Connection, program: str, machine: str) -> None:
    """The machine of that name has died while the program with that id ran."""
    add_counts(connection, SORT, {f"{program} {machine}": 1})


def machine_deaths(connection: Connection, path: Path) -> Mapping[str, list[str]]:
    """By the program's id, the machines that have died, in the order of their names; one that died
    twice is there twice."""
    found: dict[str, list[str]] = {}
    query = select(COUNTS).where(COUNTS.c.sort == SORT).order_by(COUNTS.c.name)
    for row in connection.execute(query).mappings():
        one = row_of(CountRow, row, path, row["name"])
        program, _, machine = one.name.partition(" ")
        found.setdefault(program, []).extend([machine] * int(one.value))
    return found
