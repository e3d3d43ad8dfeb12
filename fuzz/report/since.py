"""What is new since last night: a campaign's buckets beside what it knew when it began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from attnfuzz.corpus.known_before import KnownBefore
from attnfuzz.corpus.known_issues import known_as
from attnfuzz.corpus.retried import Retried, RetriedBucket
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.tables import Row


@dataclass(frozen=True, kw_only=True)
class Since:
    """Ids of a campaign's buckets: `new` ones, and those that it knew and met `again`. Of the
    corpora's buckets, by their ids: which `came_back`, which have `stopped` failing, and of which a
    decision has `expired`, each with what there is to say of it. `retried` are those whose cases
    the campaign has run again, and whether all of them passed."""

    new: list[str]
    again: list[str]
    came_back: Mapping[str, str]
    stopped: Mapping[str, str]
    expired: Mapping[str, str]
    retried: Mapping[str, bool]

    def lines(self) -> list[str]:
        """As a person reads it."""
        counts = f"{len(self.new)} new{_named(self.new)}, {len(self.again)} again"
        stopped = {name: f"passed with torch {torch}" for name, torch in self.stopped.items()}
        parts = (
            ("came back", self.came_back),
            ("stopped failing", stopped),
            ("to be looked at again", self.expired),
        )
        passed = sum(self.retried.values())
        again = f"tried again: {counted(len(self.retried), 'known bucket')}, {passed} passed"
        return [
            f"since last night: {counts}{_named(self.again)}",
            *([again] if self.retried else []),
            *(f"{what}: {name} ({why})" for what, some in parts for name, why in some.items()),
        ]


def since(
    rows: Iterable[Row], before: KnownBefore | None, retried: Retried | None = None
) -> Since | None:
    """What `rows`, those of a campaign's buckets, and what it has `retried` say beside what was
    known before; None where it knew no corpus."""
    if before is None:
        return None
    again = _by_the_one_that_stays(retried)
    known = {row.id: known_as(row.known_issue) for row in rows}
    met = sorted({name for name in known.values() if name})
    passed = {name: all(one.passes for one in parts) for name, parts in again.items()}
    back = {name: why for name, why in before.would_come_back.items() if name in met}
    stopped = dict(before.stopped)
    for name, parts in again.items():
        why = next((one.came_back for one in parts if one.came_back), None)
        back |= {name: why} if why else {}
        if retried and any(one.stopped for one in parts):
            stopped[name] = retried.torch
    fails = {*met, *(name for name, passes in passed.items() if not passes)}
    return Since(
        new=[name for name, as_what in known.items() if as_what is None],
        again=met,
        came_back=back,
        stopped={name: torch for name, torch in stopped.items() if name not in fails},
        expired=before.expired,
        retried=passed,
    )


def _by_the_one_that_stays(retried: Retried | None) -> dict[str, list[RetriedBucket]]:
    found: dict[str, list[RetriedBucket]] = {}
    for one in retried.buckets.values() if retried else ():
        found.setdefault(one.stays, []).append(one)
    return found


def _named(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
