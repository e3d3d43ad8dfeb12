"""Whether processes do anything at all: what all of them sleep through, nobody will end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

POLLING = 0.02
"""Share of a CPU that a thread may use and still be asleep: gloo's wake up 100 times a second to
look whether something has come (0.3%, measured), and so does who waits for a lock file."""

WANTING = 0.9
"""Share of the time from which on a thread that runs or waits for a CPU is at work, however little
it gets: so that nothing looks idle because the machine is loaded. With four busy processes on two
CPUs who is at work wants one for 99% of the time and gets 5% and more; gloo's threads, each time
that they wake up, wait so long for one that they want it for 45 to 65% (measured)."""


@dataclass(frozen=True)
class Thread:
    """What Linux tells of a thread: its state, the seconds that it has run, and, where the kernel
    tells that, those that it waited for a CPU before it got one, and how often it got one."""

    state: str
    ran: float
    waited: float | None = None
    turns: int = 0

    def worked_since(self, before: Thread, seconds: float) -> bool:
        """Whether it was at work for `seconds`, since it was `before`."""
        ran, states = self.ran - before.ran, before.state + self.state
        if ran > POLLING * seconds or states in ("DD", "DR", "RD"):  # D: waits for the disk
            return True
        if states == "RR" and self.turns == before.turns:
            return True  # it still waits for its turn, which is not told before it gets it
        if self.waited is None or before.waited is None:
            return False
        return ran + self.waited - before.waited > WANTING * seconds


@dataclass
class Idleness:
    """Looks at processes from time to time; all of them are idle from one look to the next when no
    thread was at work, and none has come or gone."""

    _threads: dict[int, Thread] = field(default_factory=dict)
    _looked: float = 0.0
    _since: float | None = None

    def look(self, pids: Iterable[int], now: float) -> float:
        """Seconds, up to `now` (by time.monotonic()), for which `pids` have been idle."""
        threads, before = _threads(pids), self._threads
        seconds = now - self._looked
        idle = threads.keys() == before.keys() and not any(
            thread.worked_since(before[number], seconds) for number, thread in threads.items()
        )
        if not idle:
            self._since = None
        elif self._since is None:
            self._since = self._looked
        self._threads, self._looked = threads, now
        return 0.0 if self._since is None else now - self._since


def _threads(pids: Iterable[int]) -> dict[int, Thread]:
    """The threads of `pids`, by number; not those that have ended."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # ended meanwhile
            for number in os.listdir(f"/proc/{pid}/task"):
                thread = _thread(f"/proc/{pid}/task/{number}")
                if thread.state not in "ZX":
                    found[int(number)] = thread
    return found


def _thread(folder: str) -> Thread:
    with open(f"{folder}/stat", "rb") as file:
        told = file.read().rpartition(b")")[2].split()
    state, ticks = told[0].decode(), int(told[11]) + int(told[12])
    try:
        with open(f"{folder}/schedstat", "rb") as file:
            ran, waited, turns = (int(number) for number in file.read().split())
    except FileNotFoundError:  # ended meanwhile, or a kernel without SCHED_INFO
        return Thread(state, ticks / os.sysconf("SC_CLK_TCK"))
    return Thread(state, ran / 1e9, waited / 1e9, turns)
