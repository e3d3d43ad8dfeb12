"""CPUs of this machine, each held by one worker at a time, whichever campaign it is of.

What holds one is a socket with an abstract name: all processes of the machine (of one network
namespace) see it, it is no file, and it is gone with its process.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence

NAME = "\0attnfuzz-cpu-"


def here() -> set[int]:
    """The CPUs that this process may use: those of its container's cpuset."""
    return os.sched_getaffinity(0)


class HeldCpus:
    """`count` of the CPUs `among`, those with the least numbers that nobody holds; none where there
    are fewer. They are held until they are closed, or this process ends."""

    def __init__(self, count: int, among: Iterable[int]) -> None:
        self._held: dict[int, socket.socket] = {}
        for cpu in sorted(among):
            if len(self._held) < count:
                self._take(cpu)
        if len(self._held) < count:
            self.close()

    def _take(self, cpu: int) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.bind(f"{NAME}{cpu}")
        except OSError:  # another worker's
            made.close()
        else:
            self._held[cpu] = made

    @property
    def numbers(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(self._held)

    def close(self) -> None:
        """Gives them back."""
        while self._held:
            self._held.popitem()[1].close()


def enough(cpus: Sequence[int], processes: int) -> tuple[int, ...]:
    """Those of `cpus` that a program of so many processes is confined to: none, and so all of the
    machine, where each would not have one of its own, which would make it slower than it is."""
    return tuple(cpus) if 1 <= processes <= len(cpus) else ()


def confine_to(cpus: Iterable[int], pid: int = 0) -> None:
    """Has a process (0: this one), and what it starts from now on, run on `cpus` only; on whatever
    it may use where there are none, or one of them is not there any more."""
    wanted = set(cpus)
    with contextlib.suppress(OSError):
        if wanted:
            os.sched_setaffinity(pid, wanted)
