"""What is new since last night: a campaign's buckets beside what it knew when it began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from attnfuzz.corpus.known_before import KnownBefore
from attnfuzz.corpus.known_issues import known_as
from attnfuzz.fuzz.report.tables import Row


@dataclass(frozen=True, kw_only=True)
class Since:
    """Ids of a campaign's buckets: `new` ones, and those that it knew and met `again`. Of the
    corpora's buckets, by their ids: which `came_back`, which have `stopped` failing, and of which a
    decision has `expired`, each with what there is to say of it."""

    new: list[str]
    again: list[str]
    came_back: Mapping[str, str]
    stopped: Mapping[str, str]
    expired: Mapping[str, str]

    def lines(self) -> list[str]:
        """As a person reads it."""
        counts = f"{len(self.new)} new{_named(self.new)}, {len(self.again)} again"
        stopped = {name: f"passed with torch {torch}" for name, torch in self.stopped.items()}
        parts = (
            ("came back", self.came_back),
            ("stopped failing", stopped),
            ("to be looked at again", self.expired),
        )
        return [
            f"since last night: {counts}{_named(self.again)}",
            *(f"{what}: {name} ({why})" for what, some in parts for name, why in some.items()),
        ]


def since(rows: Iterable[Row], before: KnownBefore | None) -> Since | None:
    """What `rows`, those of a campaign's buckets, say beside what was known before; None where it
    knew no corpus."""
    if before is None:
        return None
    known = {row.id: known_as(row.known_issue) for row in rows}
    met = sorted({name for name in known.values() if name})
    return Since(
        new=[name for name, as_what in known.items() if as_what is None],
        again=met,
        came_back={name: why for name, why in before.would_come_back.items() if name in met},
        stopped={name: torch for name, torch in before.stopped.items() if name not in met},
        expired=before.expired,
    )


def _named(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
