"""Processes as /proc shows them: whose they are, and how to end all of them.

Standard library only, and nothing of ours: the zygote and the reaper load this file by its path.
A zombie counts as ended; its parent only has to collect it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

PF_KTHREAD = 0x200000
"""The kernel's flag of threads of its own (`include/linux/sched.h`)."""


@dataclass(frozen=True)
class Process:
    """A process as /proc/PID/stat describes it: the ids of the process, its parent, its group and
    its session, its state (a letter), and the name of its command."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    state: str
    name: str


def read(pid: int) -> Process | None:
    """The process `pid`, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, ppid, pgid, sid = rest.split()[:4]
    return Process(pid, int(ppid), int(pgid), int(sid), state, name)


def table() -> dict[int, Process]:
    """Every process by pid, zombies too."""
    found = (read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return {p.pid: p for p in found if p is not None}


def running() -> dict[int, Process]:
    """Every process that has not ended, by pid."""
    return {pid: p for pid, p in table().items() if p.state not in "ZX"}


def cpu_seconds(pid: int) -> float:
    """CPU seconds of the process itself, without its children; 0.0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds_of_all(pids: Iterable[int]) -> float:
    """CPU seconds of the processes and of those below them that have ended and were waited for."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:  # ended meanwhile
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def thread_names() -> list[str]:
    """What this process's threads are called."""
    tasks = os.listdir("/proc/self/task")
    return [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in tasks]


def descendants(root: int) -> list[int]:
    """Everything that `root` started and what those started, `root` itself not among them.

    Complete when `root` is a subreaper: what daemonizes below it becomes its child again.
    """
    everything = running()
    known = {root}
    found: list[int] = []
    grew = True
    while grew:
        new = [p.pid for p in everything.values() if p.ppid in known and p.pid not in known]
        known.update(new)
        found += new
        grew = bool(new)
    return found


def marked(variable: str, value: str) -> list[int]:
    """Processes whose environment, as it was when they were executed, has `variable=value`."""
    wanted = f"{variable}={value}".encode()
    found = []
    for pid in running():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def executing() -> list[int]:
    """Processes in the middle of an exec, which show neither an environment nor a command."""
    return [pid for pid in running() if _shows_nothing(pid)]


def _shows_nothing(pid: int) -> bool:
    about = Path(f"/proc/{pid}")
    try:
        if any((about / name).read_bytes() for name in ("cmdline", "environ")):
            return False
        fields = (about / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:  # ended meanwhile, or another user's
        return False
    return not int(fields[6]) & PF_KTHREAD


def in_sessions(sessions: Iterable[int]) -> list[int]:
    """Processes of any of these sessions or process groups."""
    wanted = set(sessions)
    return [p.pid for p in running().values() if p.sid in wanted or p.pgid in wanted]


def send(pid: int, number: int) -> None:
    """Signals `pid`; says nothing when it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def kill_all(find: Callable[[], list[int]], within: float = 10.0) -> list[int]:
    """Ends all processes that `find` finds, and what they start meanwhile.

    They are stopped before any is killed, so that none can fork away from under us. Returns those
    still there after `within` seconds: an empty list unless the kernel holds one.
    """
    end = time.monotonic() + within
    pause = 0.001
    while pids := [pid for pid in find() if pid != os.getpid()]:
        stopped: set[int] = set()
        while new := [pid for pid in pids if pid not in stopped]:
            for pid in new:
                send(pid, signal.SIGSTOP)
            stopped.update(new)
            pids = [pid for pid in find() if pid != os.getpid()]
            if time.monotonic() > end:
                break
        for pid in sorted(stopped):
            send(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return pids
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return []
