"""Cases over toolchains as a table: for a terminal, as Markdown, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from attnfuzz.fuzz.replay.matrix import Cell, Column, Result
from attnfuzz.fuzz.report.escape import code, markdown, plain


@dataclass(frozen=True)
class Named:
    """A case as the table names it: its bucket's id, its own, what it ran on, where it lies."""

    bucket: str
    case: str
    target: str
    path: str


def table(cases: Sequence[Named], columns: Sequence[Column]) -> Table:
    """The table for a terminal."""
    made = Table("bucket", "case", "target", box=None, pad_edge=False, header_style="bold")
    for one in columns:
        made.add_column(plain(f"{one.toolchain}\ntorch {one.torch}"))
    for place, case in enumerate(cases):
        made.add_row(
            plain(case.bucket), plain(case.case), case.target,
            *(one.cells[place].result.value for one in columns),
        )  # fmt: skip
    return made


def notes(cases: Sequence[Named], columns: Sequence[Column]) -> list[str]:
    """What is to be said of single cells, a line for each that is alike."""
    told: dict[tuple[str, Result, str], list[str]] = {}
    for one in columns:
        for case, cell in zip(cases, one.cells, strict=True):
            if cell.detail:
                told.setdefault((one.toolchain, cell.result, cell.detail), []).append(case.case)
    return [
        f"{toolchain}, {', '.join(ids)}: {result.value}: {detail}"
        for (toolchain, result, detail), ids in told.items()
    ]


def as_markdown(cases: Sequence[Named], columns: Sequence[Column]) -> str:
    """The table as Markdown, with notes below it."""
    head = ["bucket", "case", "target", *(f"torch {one.torch}" for one in columns)]
    lines = [_row(map(markdown, head)), _row("---" for _ in head)]
    for place, case in enumerate(cases):
        cells = (markdown(one.cells[place].result.value) for one in columns)
        named = (code(case.bucket), code(case.case), markdown(case.target))
        lines.append(_row([*named, *cells]))
    below = [f"- {markdown(note)}" for note in notes(cases, columns)]
    return "\n".join([*lines, *([""] if below else []), *below])


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def as_data(cases: Sequence[Named], columns: Sequence[Column]) -> dict[str, Any]:
    """The table as data."""
    return {
        "toolchains": [
            {"name": one.toolchain, "python": one.python, "environment": dict(one.environment)}
            for one in columns
        ],
        "cases": [
            {
                **vars(case),
                "results": {one.toolchain: _cell(one.cells[place]) for one in columns},
            }
            for place, case in enumerate(cases)
        ],
    }


def _cell(cell: Cell) -> dict[str, str]:
    return {"result": cell.result.value, "detail": cell.detail}
