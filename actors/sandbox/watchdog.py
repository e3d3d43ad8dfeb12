"""The watchdog: how a hang is detected.

A program hangs where it misses the deadline of its phase or the total one, or where all of its
processes have been asleep for long enough: nobody would wake them. Time for which others keep it
from the CPUs is not counted, up to a limit, and what looks like a hang is tried again with
`PATIENCE` times the deadlines before it is called one (see `Sandbox.run`). `sandbox.activity` looks
at the processes, `sandbox.stacks` at where they hang.
"""

from __future__ import annotations

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

ASLEEP = "all asleep"
"""How the message of a hang begins that was detected before a deadline, by sleeping processes."""


@dataclass
class Watchdog:
    """Watches one run, which began at `began` and may use so many `cpus` (0: all that this process
    may). All times are time.monotonic()'s."""

    deadlines: Deadlines
    began: float
    cpus: int = 0
    phase: Phase = Phase.BUILD
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by phase, up to when the last one was entered."""
    leaving: bool = False
    """Whether the child has given its outcome, and has only to end."""
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

    def may_look(self, now: float) -> bool:
        """Whether the last look is long enough ago."""
        return now - self._activity.looked >= BLINK_S

    @property
    def kept(self) -> float:
        """Seconds of its phase for which it was kept from the CPUs."""
        return self._activity.kept - self._kept_before

    @property
    def asleep(self) -> float:
        """Seconds for which nothing of it has run since it entered its phase."""
        return min(self._activity.asleep, self._activity.looked - self._entered)

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
