"""Where a bucket stands: what of its history is in force on a day, and with which torch it failed
and passed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from packaging.version import InvalidVersion, Version

from attnfuzz.corpus.decisions.events import (
    Decision,
    Event,
    FixedIn,
    MergedInto,
    Seen,
    SplitFrom,
    Tried,
    Undo,
    sentence,
)
from attnfuzz.corpus.decisions.history import history

CAME_BACK, PASSES = "came back", "passes"


@dataclass(frozen=True)
class Run:
    """That a bucket's cases were run with `torch`, and whether all of them passed; `place` is that
    of the event that says so."""

    place: tuple[int, str]
    torch: str
    passed: bool

    @property
    def release(self) -> Version:
        """Torch's, without what a build adds."""
        return release(self.torch)


@dataclass(frozen=True, kw_only=True)
class Status:
    """Where a bucket stands on the day `on`.

    `decision` is in force; `also` are others that nobody took back and none replaces, which two
    people made at the same time. `expired` is a decision that no longer holds: the bucket is to be
    looked at again. `merged_into` is the id of the bucket that it is a part of, `split_from` of
    that whose cases it has. `runs` say with which torch it failed or passed.
    """

    on: date
    decision: Event | None
    also: tuple[Event, ...]
    expired: Event | None
    merged_into: str | None
    split_from: str | None
    runs: tuple[Run, ...]

    @property
    def kind(self) -> str:
        """Of the decision in force: "reported", "not-a-bug" …; "" where nothing is decided."""
        return self.decision.said.kind if self.decision else ""

    @property
    def label(self) -> str:
        """In words: "reported: https://…", "not a bug: why"; "" where nothing was decided."""
        if self.expired is not None:
            return f"to be looked at again: {sentence(self.expired.said)}"
        if self.decision is None:
            return ""
        others = "".join(f"; decided elsewhere: {sentence(one.said)}" for one in self.also)
        return sentence(self.decision.said) + others

    @property
    def went(self) -> str:
        """What the last run says: "came back", "passes", or "" where it fails as ever or was never
        noted."""
        if not self.runs:
            return ""
        last = self.runs[-1]
        if last.passed:
            return PASSES if self.stopped(last.torch) else ""
        return CAME_BACK if self.came_back(last.torch) else ""

    def passes_with(self, torch: str) -> str | None:
        """The torch with which it was last seen to pass, if that is the newest that it was tried
        with up to `torch`; None where it failed with that, or was never tried."""
        there = [run for run in self.runs if run.release <= release(torch)]
        newest = max((run.release for run in there), default=None)
        last = next((run for run in reversed(there) if run.release == newest), None)
        return last.torch if last and last.passed else None

    def stopped(self, torch: str) -> str | None:
        """The same, unless somebody has decided already that it is fixed."""
        return None if self.kind == "fixed-in" else self.passes_with(torch)

    def came_back(self, torch: str) -> str | None:
        """Why a failure with `torch` means that it came back: "fixed in 2.14", "passed with
        2.14.0"; None where it never went away, or somebody has decided on it since."""
        said = self.decision.said if self.decision else None
        if isinstance(said, FixedIn):
            return f"fixed in {said.version}" if release(said.version) <= release(torch) else None
        since = self.decision.place if self.decision else (0, "")
        for at, run in enumerate(self.runs):
            before = (one for one in self.runs[:at] if not one.passed)
            if (
                run.passed
                and run.place > since
                and run.release <= release(torch)
                and any(one.release <= run.release for one in before)
            ):
                return f"passed with torch {run.torch}"
        return None


def status(bucket_folder: Path, on: date) -> Status:
    """Where the bucket in that folder stands on that day. Raises CaseError, one sentence."""
    return status_of(history(bucket_folder), on)


def status_of(events: Sequence[Event], on: date) -> Status:
    """The same by its history."""
    stand = in_force(events)
    heads = decisions(stand)
    holding = [one for one in heads if one.said.until is None or on <= one.said.until]
    last = holding[-1] if holding else None
    merged = [one.said.other for one in stand if isinstance(one.said, MergedInto)]
    split = [one.said.other for one in stand if isinstance(one.said, SplitFrom)]
    return Status(
        on=on,
        decision=last,
        also=tuple(holding[:-1]),
        expired=heads[-1] if heads and not holding else None,
        merged_into=merged[-1] if merged else None,
        split_from=split[-1] if split else None,
        runs=tuple(_runs(events)),
    )


def in_force(events: Sequence[Event]) -> list[Event]:
    """The events that no undo takes back, or none that stands itself."""
    taken_back: set[str] = set()
    stand: list[Event] = []
    for event in reversed(events):
        if event.name in taken_back:
            continue
        if isinstance(event.said, Undo):
            taken_back.add(event.said.event)
        stand.append(event)
    return stand[::-1]


def decisions(stand: Iterable[Event]) -> list[Event]:
    """Of the events that stand the decisions that none of them replaces; mostly one."""
    made = [one for one in stand if isinstance(one.said, Decision)]
    replaced = {name for one in made for name in one.said.instead_of}
    return [one for one in made if one.name not in replaced]


def outcomes(events: Iterable[Event], torch: str) -> dict[str, str]:
    """By a case's id what it did when it was last tried with exactly that torch, and no campaign
    has met the bucket with it since."""
    found: dict[str, str] = {}
    for said in (event.said for event in events):
        if isinstance(said, Seen | Tried) and said.torch == torch:
            found = found | said.outcomes if isinstance(said, Tried) else {}
    return found


def release(torch: str) -> Version:
    """The version of torch without what a build adds, "2.13.0" of "2.13.0+cpu"; 0 where it is no
    version."""
    try:
        return Version(Version(torch).public)
    except InvalidVersion:
        return Version("0")


def _runs(events: Sequence[Event]) -> list[Run]:
    found: list[Run] = []
    for at, event in enumerate(events):
        said = event.said
        if isinstance(said, Seen):
            found.append(Run(event.place, said.torch, passed=False))
        elif isinstance(said, Tried):
            if said.found_with is not None and not found:  # before anything was noted
                found.append(Run(event.place, said.found_with, passed=False))
            now = outcomes(events[: at + 1], said.torch)
            passed = all(outcome == "fixed" for outcome in now.values())
            found.append(Run(event.place, said.torch, passed))
    return found
