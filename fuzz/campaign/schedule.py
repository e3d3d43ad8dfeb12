"""What runs next: new programs, or the next step with a finding.

The controller keeps the pool busy with both kinds of work. `FairShare` says whether a kind is
behind, `Timetable` what there is still time for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from attnfuzz.fuzz.pool.tasks import Handle

WINDOW_S = 180.0
"""Seconds over which the shares hold: an expensive finding must not stop new programs for longer,
whatever came before."""

RECENT_S = 0.1
"""Seconds for which the shares are not worked out anew: with a thousand workers they are asked for
a thousand times in a row, and each time costs milliseconds."""


@dataclass
class FairShare:
    """Keeps one kind of work to `share` of the workers' busy time of the last `window_s` seconds
    while there is other work, and, where there are several `workers`, one of them at that.

    Tasks that still run count with the time they have taken so far, or a long one would look free.
    """

    share: float
    workers: int = 1
    window_s: float = WINDOW_S
    running: dict[Handle, tuple[bool, float]] = field(default_factory=dict)
    _ended: deque[tuple[bool, float, float]] = field(default_factory=deque)
    _spent: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    _at_it: int = 0
    _recent: tuple[float, dict[bool, float]] | None = None

    def start(self, handle: Handle, counts: bool, now: float) -> None:
        """Notes that a task has started at time `now` (seconds), and whether it is of that kind."""
        self.running[handle] = (counts, now)
        self._at_it += counts

    def stop(self, handle: Handle, now: float) -> None:
        """Counts the time of a task that has ended. Raises KeyError if it was never started."""
        counts, since = self.running.pop(handle)
        self._at_it -= counts
        self._ended.append((counts, since, now))
        self._spent[counts] += now - since

    def is_due(self, now: float) -> bool:
        """Whether that kind has had less than its share, and leaves a worker."""
        if self.workers > 1 and self._at_it >= self.workers - 1:
            return False
        if self._recent is None or not 0 <= now - self._recent[0] < RECENT_S:
            self._recent = now, self.busy(now)
        busy = self._recent[1]
        return busy[True] <= self.share * (busy[True] + busy[False])

    def busy(self, now: float) -> dict[bool, float]:
        """Seconds of the window that workers were at that kind (True), or at others."""
        begin = now - self.window_s
        while self._ended and self._ended[0][2] <= begin:
            self._ended.popleft()
        busy = {True: 0.0, False: 0.0}
        going_on = [(counts, since, now) for counts, since in self.running.values()]
        for counts, since, until in (*self._ended, *going_on):
            busy[counts] += max(0.0, until - max(since, begin))
        return busy

    def spent(self, now: float) -> dict[bool, float]:
        """The same since the beginning."""
        spent = dict(self._spent)
        for counts, since in self.running.values():
            spent[counts] += now - since
        return spent


@dataclass(frozen=True)
class Timetable:
    """When a campaign of `seconds` stops doing what: each is a share of its time before the end,
    and at most so many seconds, as what has to be finished takes no longer in a long campaign."""

    seconds: float
    no_shard_when_pending: tuple[float, float] = (0.2, 1200.0)
    """While findings are pending no shard is started."""
    no_step: tuple[float, float] = (0.08, 300.0)
    """Minimizing keeps the best so far."""
    no_shard: tuple[float, float] = (0.05, 180.0)
    """No shard is started."""

    def may_find(self, elapsed: float, pending: bool) -> bool:
        """Whether a new shard may start, `elapsed` seconds after the beginning; `pending` says
        whether findings are."""
        return elapsed < self._until(self.no_shard_when_pending if pending else self.no_shard)

    def must_wind_down(self, elapsed: float) -> bool:
        """Whether minimizing must stop and keep the best so far."""
        return elapsed >= self._until(self.no_step)

    def is_over(self, elapsed: float) -> bool:
        """Whether the campaign's time is up."""
        return elapsed >= self.seconds

    def _until(self, last: tuple[float, float]) -> float:
        share, most_s = last
        return self.seconds - min(share * self.seconds, most_s)
