"""Whether processes do anything at all: what all of them sleep through, nobody will end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

ASLEEP = "STt"
"""States of a thread that waits to be woken, is stopped, or is traced. One that waits for a CPU (R)
or for the disk (D) at two looks running is at work, so that nothing looks idle because the machine
is loaded; at one of them it may just have woken up."""

POLLING = 0.02
"""Share of a CPU that a thread may use and still be asleep: gloo's wake up 100 times a second to
look whether something has come (0.3%, measured), and so does who waits for a lock file."""


@dataclass
class Idleness:
    """Looks at processes from time to time; all of them are idle from one look to the next when no
    thread was at work at both, none has come or gone, and none used more than `POLLING`."""

    _used: dict[int, float] = field(default_factory=dict)
    _at_work: set[int] = field(default_factory=set)
    _looked: float = 0.0
    _since: float | None = None

    def look(self, pids: Iterable[int], now: float) -> float:
        """Seconds, up to `now` (by time.monotonic()), for which `pids` have been idle."""
        threads = _threads(pids)
        may_use = POLLING * (now - self._looked)
        at_work = {thread for thread, (state, _) in threads.items() if state not in ASLEEP}
        idle = (
            threads.keys() == self._used.keys()
            and not at_work & self._at_work
            and all(used - self._used[thread] <= may_use for thread, (_, used) in threads.items())
        )
        if not idle:
            self._since = None
        elif self._since is None:
            self._since = self._looked
        self._used = {thread: used for thread, (_, used) in threads.items()}
        self._at_work = at_work
        self._looked = now
        return 0.0 if self._since is None else now - self._since


def _threads(pids: Iterable[int]) -> dict[int, tuple[str, float]]:
    """State, and CPU seconds so far, of each thread of `pids`."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # ended meanwhile
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    told = file.read().rpartition(b")")[2].split()
                state, used = told[0].decode(), (int(told[11]) + int(told[12])) / tick
                if state not in "ZX":  # it has ended
                    found[int(thread)] = (state, used)
    return found
