"""What a request asks of a list: which rows, in which order, which page of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnfuzz.corpus.store.listing import Wanted
from attnfuzz.corpus.store.rows import State
from attnfuzz.fuzz.report.tables import Row, rank
from attnfuzz.generators.model.ordinariness import ORDINARY
from attnfuzz.generators.model.outcome import WORST_FIRST

PER_PAGE = 100
ORDERS: dict[str, Callable[[Row], Any]] = {
    "worst first": rank,
    "most ordinary first": lambda row: (row.strangeness, rank(row)),
    "most seen first": lambda row: (-row.occurrences, rank(row)),
    "least reliable first": lambda row: (row.failures / max(1, row.runs), rank(row)),
    "by title": lambda row: (row.title, row.id),
}
BANDS = ((75, "75 to 100"), (50, "50 to 74"), (25, "25 to 49"), (0, "0 to 24"))
"""Of severities: the least of each, and its name."""

FILTERS: dict[str, Callable[[Row], str]] = {
    "kind": lambda row: row.kind,
    "severity": lambda row: next(name for least, name in BANDS if row.severity >= least),
    "program": lambda row: "ordinary" if row.strangeness <= ORDINARY else "odd",
    "layer": lambda row: row.layer or "-",
    "target": lambda row: row.target,
    "state": lambda row: row.state,
    "decision": lambda row: row.decision or "none",
    "known": lambda row: "known" if row.known_issue else "new",
}


@dataclass(frozen=True)
class Pages:
    """Where in a list one is: page `number` `of` how many, and the addresses of its neighbours."""

    number: int
    of: int
    before: str
    after: str


def asked(query: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Of a request's `query` what a list understands; "" for what is not given."""
    return {name: query.get(name, "")[:200] for name in names}


def page_number(query: Mapping[str, str]) -> int:
    """The page that is asked for, the first where that is no number."""
    given = query.get("page", "")
    return max(1, int(given)) if given.isascii() and given.isdigit() and len(given) < 9 else 1


def pages(number: int, total: int, address: Callable[[int], str]) -> Pages:
    """The place of page `number` in a list of `total` rows."""
    of = max(1, -(-total // PER_PAGE))
    before = address(min(number, of + 1) - 1) if number > 1 else ""
    return Pages(number, of, before, address(number + 1) if number < of else "")


def choices(rows: Sequence[Row]) -> dict[str, list[str]]:
    """For each filter the values that rows have; one that would change nothing is left out."""
    values = {name: sorted({of(row) for row in rows}) for name, of in FILTERS.items()}
    return {name: some for name, some in values.items() if len(some) > 1}


def filtered(rows: Sequence[Row], given: Mapping[str, str]) -> list[Row]:
    """The rows that were asked for, in the order that was asked for."""
    wanted = {name: given[name] for name in FILTERS if given.get(name)}
    text = given.get("q", "").casefold()
    some = [
        row
        for row in rows
        if all(FILTERS[name](row) == value for name, value in wanted.items())
        and text in f"{row.title} {row.id} {row.known_issue or ''}".casefold()
    ]
    return sorted(some, key=ORDERS.get(given.get("sort", ""), rank))


def wanted(given: Mapping[str, str]) -> Wanted:
    """Which failures were asked for; what is no kind or state is passed over."""
    kind, state = given.get("kind", ""), given.get("state", "")
    return Wanted(
        kind=kind if kind in KINDS else "",
        state=state if state in STATES else "",
        bucket=given.get("bucket", ""),
    )


KINDS = [kind.value for kind in WORST_FIRST]
STATES = [state.value for state in State]
