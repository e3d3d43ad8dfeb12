"""What processes do with their time: sleep, which nobody will end when all of them do; work; or
wait for a CPU, which is not their doing."""

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

KEPT = 4.0
"""A deadline is put off while who has to meet it is kept from the CPUs, by this many times its
length at most, as what waits for ever may look like that too."""


@dataclass(frozen=True)
class Thread:
    """What Linux shows of a thread: its state, the seconds that it has run, and, where the kernel
    counts that, those that it waited for a CPU before it got one, and how often it got one."""

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
            return True  # it still waits for its turn, which is not counted before it gets it
        if self.waited is None or before.waited is None:
            return False
        return ran + self.waited - before.waited > WANTING * seconds


NEW = Thread("R", 0.0, 0.0)


@dataclass
class Activity:
    """Looks from time to time at processes that began when it did, and may use so many `cpus`.

    `asleep` is for how many seconds, up to the last look, all of them have been asleep: from one
    look to the next no thread was at work, and none has come or gone. `kept` is for how many
    seconds one of them or more waited for a CPU that others had. `looked` is when (by
    time.monotonic()) they began, and then when it last looked.
    """

    looked: float
    cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    asleep: float = 0.0
    kept: float = 0.0
    _threads: dict[int, Thread] = field(default_factory=dict)

    def look(self, pids: Iterable[int], now: float) -> None:
        """Looks at `pids` at `now`."""
        threads, before = _threads(pids), self._threads
        seconds = now - self.looked
        idle = threads.keys() == before.keys() and not any(
            thread.worked_since(before[number], seconds) for number, thread in threads.items()
        )
        self.asleep = self.asleep + seconds if idle else 0.0
        self.kept += _kept(threads, before, seconds, self.cpus)
        self._threads, self.looked = threads, now

    def allows(self, seconds: float, kept_before: float = 0.0) -> float:
        """The seconds of the clock that a deadline of `seconds` gives, begun when `kept` was
        `kept_before`."""
        return seconds + min(self.kept - kept_before, KEPT * seconds)


def _kept(
    threads: dict[int, Thread], before: dict[int, Thread], seconds: float, cpus: int
) -> float:
    """For how many of `seconds` one of `threads` waited for a CPU: at most that for which they did
    not have all `cpus` themselves, as who waits for its own is as slow on an idle machine."""
    waited = ran = 0.0
    for number, thread in threads.items():
        known = before.get(number, NEW)
        waited += (thread.waited or 0.0) - (known.waited or 0.0)
        if thread.state == known.state == "R" and thread.ran == known.ran:
            waited += seconds  # it still waits, which is not counted before it gets its turn
        ran += thread.ran - known.ran
    others = seconds - ran / cpus
    return max(0.0, min(waited, others))


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
        fields = file.read().rpartition(b")")[2].split()
    state, ticks = fields[0].decode(), int(fields[11]) + int(fields[12])
    try:
        with open(f"{folder}/schedstat", "rb") as file:
            ran, waited, turns = (int(number) for number in file.read().split())
    except FileNotFoundError:  # ended meanwhile, or a kernel without SCHED_INFO
        return Thread(state, ticks / os.sysconf("SC_CLK_TCK"))
    return Thread(state, ran / 1e9, waited / 1e9, turns)
