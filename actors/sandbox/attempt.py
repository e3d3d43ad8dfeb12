"""One run of a program in a sandbox, and what is known of it so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnfuzz.actors.sandbox.job import Job
from attnfuzz.actors.sandbox.parts import PartEnd
from attnfuzz.actors.sandbox.watchdog import GLANCE_S, Watchdog


@dataclass
class Attempt:
    """What is known of a run so far. `native`: native stacks are taken when it hangs. `cpus` are
    those that it is confined to, if any."""

    directory: Path
    job: Job
    native: bool
    cpus: tuple[int, ...] = ()
    pid: int = 0
    setting_up: str = ""
    """What it has begun to set up last."""
    refused: str | None = None
    """Why eager attention is refused by design, where the program is compiled all the same."""
    result: dict[str, Any] | None = None
    """The outcome that the child has given, or that follows from those of its ranks."""
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The outcomes of the ranks that have ended here, but for those that were stopped."""
    stopped: frozenset[int] = frozenset()
    """Ranks that were ended as they waited for one that was gone."""
    ranks_ended: bool = False
    """Whether all ranks of this node have ended."""
    defect: str | None = None
    """The traceback of a defect of ours in the child."""
    ended: dict[str, Any] | None = None
    """How the child ended, as the zygote reports it."""
    hang: tuple[str, dict[str, str]] | None = None
    """What it was called one for, and the evidence."""
    crash_printed: int | None = None
    """Bytes that it had printed when it was last looked at after a fatal signal."""
    overfull: dict[str, str] | None = None
    """The evidence that it has filled its folder."""
    cut_off: bool = False
    """Whether it was ended as its leader said so."""
    elsewhere: tuple[PartEnd, ...] = ()
    """What became of the parts of other nodes."""
    over_budget: bool = False
    """Whether it has used more CPU time than it was given."""
    disk_due: float = 0.0
    """When its folder and CPU time are looked at next, by time.monotonic()."""
    watchdog: Watchdog = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begins to count its time."""
        now = time.monotonic()
        self.watchdog = Watchdog(self.job.deadlines, now, len(self.cpus))
        self.disk_due = now + GLANCE_S

    @property
    def told(self) -> bool:
        """Whether the child has said all that it has to."""
        return self.result is not None or self.ranks_ended

    @property
    def source(self) -> Path:
        """The file of the program's source."""
        return self.directory / "program.py"
