"""The watchdog: how a hang is detected.

A program hangs where it misses the deadline of its phase or the total one, or where all of its
processes have been asleep for long enough: nobody would wake them. Time for which others keep it
from the CPUs is not counted, up to a limit, and what looks like a hang is tried again with
`PATIENCE` times the deadlines before it is called one (see `Sandbox.run`). `sandbox.activity` looks
at the processes, `sandbox.stacks` at where they hang.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from attnfuzz.actors.sandbox.activity import Activity
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.generators.model.outcome import Phase

PATIENCE = 3.0
"""A suspected hang is tried again with this many times the deadlines."""

LEAVING_S = 10.0
"""Seconds that a child which has given its outcome may take to end."""

GLANCE_S = 2.0
"""How often a silent child is looked at, in seconds: it may sleep, or be stuck in a crash."""

BLINK_S = 0.25
"""How often it is looked at, at most, and how exact deadlines are."""

ALONE_S = 5.0
"""Seconds that all ranks which still run have to be asleep, after another has died or failed, until
they are stopped: nobody would wake them."""

LOOK_S = 0.5
"""How often they are looked at then."""

ASLEEP = "all asleep"
"""How the message of a hang begins that was detected before a deadline, by sleeping processes."""


@dataclass
class Watchdog:
    """Watches one run, which began at `began` and may use so many `cpus` (0: all that this process
    may). Where ranks of it run on other nodes it hears of those. All times are time.monotonic()'s.
    """

    deadlines: Deadlines
    began: float
    cpus: int = 0
    phase: Phase = Phase.BUILD
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by phase, up to when the last one was entered."""
    leaving: bool = False
    """Whether the child has given its outcome, and has only to end."""
    alone: float | None = None
    """Since when one of its ranks has failed, or has ended before its time."""
    _asleep_elsewhere: float = math.inf
    _entered: float = field(init=False)
    _kept_before: float = 0.0
    """Seconds for which it was kept from the CPUs before it entered its phase."""
    _activity: Activity = field(init=False)

    def __post_init__(self) -> None:
        self._entered = self.began
        self._activity = Activity(self.began, self.cpus) if self.cpus else Activity(self.began)

    def enter(self, now: float, phase: Phase | None = None) -> None:
        """Counts the time of the phase so far, and begins `phase`, or the same one anew."""
        spent = self.seconds.get(self.phase.value, 0.0) + now - self._entered
        self.seconds[self.phase.value] = spent
        self._entered, self._kept_before = now, self._activity.kept
        self.phase = phase or self.phase

    def leave(self, now: float) -> None:
        """Notes that the outcome is there."""
        self.enter(now)
        self.leaving = True

    def look(self, pids: Iterable[int], now: float) -> None:
        """Looks at what the processes `pids` do."""
        self._activity.look(pids, now)

    def hear(self, asleep: float, kept: float) -> None:
        """Notes for how long all that runs elsewhere is asleep, and for how long the worst of it
        was kept from the CPUs."""
        self._asleep_elsewhere = asleep
        self._activity.kept = max(self._activity.kept, kept)

    def miss(self, now: float) -> None:
        """Notes that a rank has failed, or has ended before its time."""
        if self.alone is None:
            self.alone = now

    @property
    def deserted(self) -> bool:
        """Whether the ranks that still run wait for one that has failed."""
        if self.alone is None:
            return False
        return min(self.asleep, self._activity.looked - self.alone) >= ALONE_S

    @property
    def glance(self) -> float:
        """After how many silent seconds it is looked at."""
        return GLANCE_S if self.alone is None else LOOK_S

    def may_look(self, now: float) -> bool:
        """Whether the last look is long enough ago."""
        return now - self._activity.looked >= BLINK_S

    @property
    def kept(self) -> float:
        """Seconds of its phase for which it was kept from the CPUs."""
        return self._activity.kept - self._kept_before

    @property
    def kept_in_all(self) -> float:
        """Seconds for which it was kept from them since it began."""
        return self._activity.kept

    @property
    def asleep(self) -> float:
        """Seconds for which nothing of it has run since it entered its phase."""
        here = min(self._activity.asleep, self._activity.looked - self._entered)
        return min(here, self._asleep_elsewhere)

    @property
    def _allowed(self) -> float:
        """Seconds that it has for its phase, were it not kept from the CPUs."""
        return LEAVING_S if self.leaving else self.deadlines.of(self.phase)

    @property
    def end(self) -> float:
        """When it misses the deadline of its phase, or the total."""
        of_phase = self._activity.allows(self._allowed, self._kept_before)
        of_all = self._activity.allows(self.deadlines.total)
        return min(self._entered + of_phase, self.began + of_all)

    def overdue(self, now: float) -> str | None:
        """That a deadline was missed; None where none is."""
        if now < self.end:
            return None
        missed = min(self._allowed, self.deadlines.total)
        return f"no progress in phase {self.phase} in {missed:g} s"

    def sleeping(self) -> str | None:
        """That its processes sleep and will not wake up; None where that cannot be said."""
        if self.asleep < self.deadlines.idle:
            return None
        return f"{ASLEEP} in phase {self.phase} for {self.deadlines.idle:g} s"
