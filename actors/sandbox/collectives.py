"""What the ranks of one program did together, compared: do all issue one sequence of collectives,
and is every message that one sends received by the other?

Collectives are compared within each process group, by their number there, so that ranks of other
groups may do something else meanwhile. Messages are compared for each sender, receiver and tag. The
records are those that `actors.child.flight` writes. Standard library only: the child loads this.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

SAME_SIZE = ("all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter")
"""Collectives in which every rank has as many elements. In the others they may differ: in an
all-to-all by what is split, in a scatter or gather by who has the whole."""

LONGEST = 64 << 20
"""Bytes of a record that are read at most."""

ANSWER_S = 2.0
"""Seconds that ranks have to write their records when they are asked."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective of a rank: the `number`-th of its group. `numel` is None where ranks may
    differ in it; `at` is the line that called it; `since_ns` is time.time_ns() at the call."""

    group: str
    number: int
    op: str
    dtype: str
    numel: int | None
    done: bool
    at: str
    since_ns: int

    def __str__(self) -> str:
        return _described(self.op, self.numel, self.dtype)

    @property
    def said(self) -> str:
        """With the line that called it."""
        return f"{self} ({self.at})" if self.at else str(self)


@dataclass(frozen=True, kw_only=True)
class Message:
    """What a rank sends to, or receives from, its group's rank `peer`; None from any."""

    group: str
    sends: bool
    peer: int | None
    tag: int
    dtype: str
    numel: int
    at: str
    since_ns: int

    def __str__(self) -> str:
        return _described("message", self.numel, self.dtype)


def _described(what: str, numel: int | None, dtype: str) -> str:
    size = "" if numel is None else str(numel)
    return f"{what} of {' '.join(filter(None, (size, dtype)))}" if size or dtype else what


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one rank did. `groups` gives the ranks of each group in its order, `asked_for` how many
    collectives and messages each group had been asked for by its last collective, where it had any.
    """

    collectives: tuple[Collective, ...] = ()
    messages: tuple[Message, ...] = ()
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    asked_for: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Where ranks part first: what most do (`expected`) and what the odd `ranks` do (`actual`).
    `since_ns` is when the first of them was there."""

    what: str
    expected: str
    actual: str
    ranks: tuple[int, ...]
    since_ns: int

    def __str__(self) -> str:
        return f"{self.what}: {self.actual}; {self.expected}"


def record_file(directory: Path, rank: int) -> Path:
    """Where the record of a rank is."""
    return directory / f"collectives-{rank}.json"


def ask_file(directory: Path, rank: int) -> Path:
    """The pipe at which a rank is asked for its record."""
    return directory / f"ask-{rank}"


def ask(directory: Path, ranks: Sequence[int]) -> None:
    """Has ranks that still run write their records, and waits until they have, or have not."""
    asked = [rank for rank in ranks if not record_file(directory, rank).exists()]
    asked = [rank for rank in asked if _opened(ask_file(directory, rank))]
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end and not all(record_file(directory, r).exists() for r in asked):
        time.sleep(0.02)


def _opened(pipe: Path) -> bool:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:  # nobody answers there
        return False
    return True


def read(directory: Path, ranks: Iterable[int]) -> dict[int, Record]:
    """The records of those ranks that have left one."""
    found = {}
    for rank in ranks:
        try:
            with open(record_file(directory, rank), "rb") as file:
                found[rank] = _record(json.loads(file.read(LONGEST)))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue  # none, or what the program has made of it
    return found


def _record(data: dict[str, Any]) -> Record:
    return Record(
        collectives=tuple(Collective(**one) for one in data["collectives"]),
        messages=tuple(Message(**one) for one in data["messages"]),
        groups={str(name): tuple(map(int, ranks)) for name, ranks in data["groups"].items()},
        asked_for={str(name): int(count) for name, count in data["asked for"].items()},
    )


def divergence(records: Mapping[int, Record], *, ended: bool) -> Divergence | None:
    """The first place where the ranks do not do the same. With `ended` all have done all they
    would, so that one which did less is different too."""
    found = [*_of_collectives(records, ended), *(_of_messages(records) if ended else ())]
    return min(found, key=lambda one: one.since_ns, default=None)


# --- collectives

Key = tuple[str, tuple[int, ...]]
"""A group: two sets of ranks may give theirs one name."""


def _by_group(records: Mapping[int, Record]) -> dict[Key, dict[int, dict[int, Collective]]]:
    """Of each group the collectives of its ranks, by their numbers."""
    found: dict[Key, dict[int, dict[int, Collective]]] = {}
    for rank, record in records.items():
        for name, members in record.groups.items():
            found.setdefault((name, members), {})[rank] = {}
        for one in record.collectives:
            key = one.group, record.groups.get(one.group, ())
            found.setdefault(key, {}).setdefault(rank, {})[one.number] = one
    return found


def _of_collectives(records: Mapping[int, Record], ended: bool) -> Iterable[Divergence]:
    for key, ranks in sorted(_by_group(records).items()):
        numbers = sorted({number for issued in ranks.values() for number in issued})
        oldest = max((min(issued, default=1) for issued in ranks.values()), default=1)
        for number in (n for n in numbers if n >= oldest):  # the recorder forgets
            here = {rank: issued.get(number) for rank, issued in ranks.items()}
            there = {rank: one for rank, one in here.items() if one is not None or ended}
            if len(set(map(_comparable, there.values()))) > 1:
                yield _parting(f"{_ordinal(number)} collective of {_named(key)}", there)
                break


def _comparable(one: Collective | None) -> str:
    return "none" if one is None else str(one)


def _parting(what: str, there: Mapping[int, Collective | None]) -> Divergence:
    ways = _ways(there, _comparable)
    most, *fewer = sorted(ways, key=len, reverse=True)
    return Divergence(
        what=what,
        expected=_said(most, there),
        actual="; ".join(_said(ranks, there) for ranks in fewer),
        ranks=tuple(sorted(rank for ranks in fewer for rank in ranks)),
        since_ns=min(one.since_ns for one in there.values() if one is not None),
    )


def _said(ranks: Sequence[int], there: Mapping[int, Collective | None]) -> str:
    one = there[ranks[0]]
    return f"{ranks_said(ranks)}: {'none' if one is None else one.said}"


T = TypeVar("T")


def _ways(there: Mapping[int, T], key: Callable[[T], str]) -> list[list[int]]:
    """The ranks, those together that do the same."""
    ways: dict[str, list[int]] = {}
    for rank, one in sorted(there.items()):
        ways.setdefault(key(one), []).append(rank)
    return list(ways.values())


# --- messages


def _of_messages(records: Mapping[int, Record]) -> Iterable[Divergence]:
    sent: dict[tuple[Any, ...], list[Message]] = {}
    received: dict[tuple[Any, ...], list[Message]] = {}
    unknown = _groups_not_seen_whole(records)
    for rank, record in records.items():
        for one in record.messages:
            members = record.groups.get(one.group, ())
            if (one.group, members) in unknown or one.peer is None or one.peer >= len(members):
                continue
            other = members[one.peer]
            pair = (rank, other) if one.sends else (other, rank)
            where = sent if one.sends else received
            where.setdefault((one.group, members, *pair, one.tag), []).append(one)
    for key in sorted(sent.keys() | received.keys()):
        group, members, source, target, tag = key
        if source in records and target in records:
            yield from _unmatched(
                f"from rank {source} to rank {target} in {_named((group, members))}, tag {tag}",
                sent.get(key, []), received.get(key, []), (source, target),
            )  # fmt: skip


def _groups_not_seen_whole(records: Mapping[int, Record]) -> set[Key]:
    """Groups in which some message was not noted, as compiled ones are not, or was received from
    any rank: there is nothing to compare."""
    found = set()
    for record in records.values():
        for group, members in record.groups.items():
            mine = [one for one in record.messages if one.group == group]
            known = len(mine) + sum(one.group == group for one in record.collectives)
            if any(one.peer is None for one in mine) or known < record.asked_for.get(group, 0):
                found.add((group, members))
    return found


def _unmatched(
    where: str, sent: Sequence[Message], received: Sequence[Message], pair: tuple[int, int]
) -> Iterable[Divergence]:
    for place in range(max(len(sent), len(received))):
        one = sent[place] if place < len(sent) else None
        other = received[place] if place < len(received) else None
        if one is None or other is None or str(one) != str(other):
            yield Divergence(
                what=f"{_ordinal(place + 1)} message {where}",
                expected=f"rank {pair[0]} sends {'none' if one is None else f'{one} ({one.at})'}",
                actual=f"rank {pair[1]} receives "
                f"{'none' if other is None else f'{other} ({other.at})'}",
                ranks=tuple(sorted(pair)),
                since_ns=min(each.since_ns for each in (one, other) if each is not None),
            )
            return


# --- for a person


def waiting(records: Mapping[int, Record]) -> dict[int, str]:
    """What each rank waits in, or did last."""
    return {rank: _waits(record) for rank, record in records.items()}


def _waits(record: Record) -> str:
    if not record.collectives:
        return "has begun no collective"
    pending = [one for one in record.collectives if not one.done]
    one = pending[0] if pending else record.collectives[-1]
    place = f"the {_ordinal(one.number)} of {_named((one.group, record.groups.get(one.group, ())))}"
    return f"{'waits in' if pending else 'last did'} {one}, {place}"


def ranks_said(ranks: Sequence[int]) -> str:
    """ "rank 2", "ranks 0, 1 and 3"."""
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


def _named(key: Key) -> str:
    name, members = key
    return f"group {name}" + (f" ({ranks_said(members)})" if members else "")


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if number % 100 in (11, 12, 13) else endings.get(number % 10, "th")
    return f"{number}{ending}"
