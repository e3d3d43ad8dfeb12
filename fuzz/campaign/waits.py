"""The longest waits of a campaign, which its summary tells: for a new program, and of findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from attnfuzz.fuzz.pool.tasks import Handle

CHEAP_S = 10.0
"""Seconds of a run below which a finding is cheap: nothing should keep it waiting."""

NO_PROGRAM = "without a new program"
FIRST_RUN = "until a cheap finding was run"
BEHIND = "until a cheap finding was looked at behind one of its key"
KNOWN = "until a cheap finding of what seems known was looked at"


@dataclass
class NewPrograms:
    """For how long no new program begins, anywhere, since `last` on the campaign's clock.

    A shard says when its programs began once it ends. Until then nothing after its own beginning is
    settled. `pause` says that no new programs are wanted from then on, until a shard starts again.
    """

    last: float
    longest: float = 0.0
    _running: dict[Handle, float] = field(default_factory=dict)
    _moments: list[tuple[float, bool | None]] = field(default_factory=list)
    _wanted: bool = True
    _counts: bool = True

    def start(self, handle: Handle, now: float) -> None:
        """A shard is handed out."""
        self._running[handle] = now
        if not self._wanted:
            self._wanted = True
            self._moments.append((now, True))

    def stop(self, handle: Handle, starts: Iterable[float], now: float) -> None:
        """A shard came back; `starts` are the seconds after its beginning at which its programs
        began."""
        since = self._running.pop(handle)
        self._moments += [(min(since + seconds, now), None) for seconds in starts]
        self._settle(min(self._running.values(), default=now))

    def pause(self, now: float) -> None:
        """No new programs are wanted."""
        if self._wanted:
            self._wanted = False
            self._moments.append((now, False))

    def close(self, now: float) -> float:
        """Settles what is left; the longest of these times, in seconds."""
        self.pause(now)
        self._settle(now)
        return self.longest

    def _settle(self, until: float) -> None:
        self._moments.sort(key=lambda moment: moment[0])
        while self._moments and self._moments[0][0] <= until:
            at, wanted = self._moments.pop(0)
            if self._counts:
                self.longest = max(self.longest, at - self.last)
            self.last = at
            self._counts = self._counts if wanted is None else wanted


class Waiting:
    """Since when findings wait for their first run, by the ids of their programs; and the longest
    waits that are over, of cheap ones, in seconds. What seems known, by a record or a bucket of its
    key, comes after everything else: its waits are told apart."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, bool]] = {}
        self.longest: dict[str, float] = {}

    def begin(self, name: str, seconds: float) -> float:
        """The finding waits, one run of which takes so many seconds; since when, as it may already
        have."""
        return self._since.setdefault(name, (self._clock(), seconds < CHEAP_S))[0]

    def end(self, name: str, *, behind: bool = False, known: bool = False) -> None:
        """It waits no more; it may have waited `behind` one of its key, or seem `known`."""
        since, cheap = self._since.pop(name, (0.0, False))
        if cheap:
            what = KNOWN if known else BEHIND if behind else FIRST_RUN
            self.longest[what] = max(self.longest.get(what, 0.0), self._clock() - since)

    def is_late(self, name: str, seconds: float) -> bool:
        """Whether a cheap finding has waited for longer than `seconds`."""
        since, cheap = self._since.get(name, (math.inf, False))
        return cheap and self._clock() - since > seconds

    def seconds(self, names: Iterable[str]) -> float:
        """For how long the one of `names` waits that waits longest; 0 where none does."""
        begun = [self._since[name][0] for name in names if name in self._since]
        return max((self._clock() - since for since in begun), default=0.0)
