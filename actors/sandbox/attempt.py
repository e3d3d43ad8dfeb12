"""One run of a program in a sandbox: what is known of it so far, and when it misses a deadline."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnfuzz.actors.sandbox.activity import Activity
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.generators.model.outcome import Phase

LEAVING_S = 10.0  # a child that has told its outcome may take this long to end


@dataclass
class Attempt:
    """What is known of a run so far. Times are time.monotonic()'s."""

    directory: Path
    job: Job
    native: bool
    """Whether native stacks are taken when it hangs."""
    pid: int = 0
    phase: Phase = Phase.BUILD
    setting_up: str = ""
    """What it has begun to set up last."""
    began: float = 0.0
    entered: float = 0.0
    kept_before: float = 0.0
    """Seconds for which it was kept from the CPUs before it entered its phase."""
    phases: dict[str, float] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    defect: str | None = None
    ended: dict[str, Any] | None = None
    hang: tuple[str, dict[str, str]] | None = None
    """What it was called one for, and the evidence."""
    activity: Activity = field(default_factory=lambda: Activity(0.0))

    @property
    def source(self) -> Path:
        return self.directory / "program.py"

    def enter(self, now: float, phase: Phase | None) -> None:
        spent = self.phases.get(self.phase.value, 0.0) + now - self.entered
        self.phases[self.phase.value] = spent
        self.entered, self.kept_before = now, self.activity.kept
        self.phase = phase or self.phase

    @property
    def allowed(self) -> float:
        """Seconds that it has for its phase, were it not kept from the CPUs."""
        return LEAVING_S if self.result is not None else self.job.deadlines.of(self.phase)

    @property
    def kept(self) -> float:
        """Seconds of its phase for which it was kept from the CPUs."""
        return self.activity.kept - self.kept_before

    @property
    def end(self) -> float:
        """When it misses the deadline of its phase, or the total."""
        of_phase = self.activity.allows(self.allowed, self.kept_before)
        of_all = self.activity.allows(self.job.deadlines.total)
        return min(self.entered + of_phase, self.began + of_all)

    @property
    def asleep(self) -> float:
        """Seconds for which nothing of it has run since it entered its phase."""
        return min(self.activity.asleep, self.activity.looked - self.entered)
