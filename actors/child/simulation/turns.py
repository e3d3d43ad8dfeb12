"""Threads that take turns: one runs at a time, until it has to wait for the others.

What runs when is a function of what the threads do, and of nothing else, so that a run can be
repeated. Where all that have not ended wait for one another, that is known at once.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STACK_BYTES = 16 << 20
"""Of each thread: dynamo's recursion is deep."""


class Stuck(Exception):
    """All ranks that have not ended wait for one another; `waits` says what for, by rank."""

    def __init__(self, waits: dict[int, str]) -> None:
        super().__init__("; ".join(f"rank {rank}: {why}" for rank, why in sorted(waits.items())))
        self.waits = waits


@dataclass
class _Wait:
    """What a rank waits for, in words, and whether it is there."""

    why: str
    is_over: Callable[[], bool]


class Turns:
    """`size` threads, one for each rank, which live as long as the process. Only the one whose turn
    it is touches anything here, or the caller of `each` while none runs. Each begins with the
    context variables of the thread that makes them: torch's configuration is in those."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._here = threading.local()
        self._done = threading.Semaphore(0)
        self._go = [threading.Semaphore(0) for _ in range(size)]
        self._work: Callable[[int], Any] | None = None
        self._running: set[int] = set()
        self._waits: dict[int, _Wait] = {}
        self._stuck: Stuck | None = None
        self._results: dict[int, Any] = {}
        self._raised: dict[int, BaseException] = {}
        threading.stack_size(STACK_BYTES)
        for rank in range(size):
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(self._live, rank), daemon=True).start()
        threading.stack_size(0)

    @property
    def rank(self) -> int:
        """The rank of the thread that asks."""
        return int(self._here.rank)

    def each(self, work: Callable[[int], Any]) -> list[Any]:
        """What `work` gives for each rank, done by its thread.

        Raises what a rank raises: of several the first one's, and what is raised because others
        have left (`Stuck`) only where nobody has.
        """
        self._work, self._stuck = work, None
        self._running, self._waits = set(range(self.size)), {}
        self._results, self._raised = {}, {}
        self._go[0].release()
        self._done.acquire()
        for rank in sorted(self._raised, key=lambda one: (self._is_stuck(one), one)):
            raise self._raised[rank]
        return [self._results[rank] for rank in range(self.size)]

    def wait(self, why: str, is_over: Callable[[], bool]) -> None:
        """Lets the others run until `is_over()`. Raises `Stuck` where they cannot go on either."""
        if is_over():
            return
        rank = self.rank
        self._waits[rank] = _Wait(why, is_over)
        if self._pass_on(rank):
            self._go[rank].acquire()
        del self._waits[rank]
        if self._stuck is not None:
            raise Stuck(self._stuck.waits)

    def _is_stuck(self, rank: int) -> bool:
        return isinstance(self._raised[rank], Stuck)

    def _live(self, rank: int) -> None:
        self._here.rank = rank
        while True:
            self._go[rank].acquire()
            assert self._work is not None
            try:
                self._results[rank] = self._work(rank)
            except BaseException as error:  # whatever a program raises
                self._raised[rank] = error
            self._running.discard(rank)
            if self._running:
                self._pass_on(rank)
            else:
                self._done.release()

    def _pass_on(self, rank: int) -> bool:
        """Gives the turn to the next rank after this one that can go on; false where that is this
        one itself. Where none can, all of them learn so, one after the other."""
        order = ((rank + 1 + i) % self.size for i in range(self.size))
        left = [one for one in order if one in self._running]
        following = next((one for one in left if self._can_go_on(one)), None)
        if following is None:
            self._stuck = Stuck({one: self._waits[one].why for one in left})
            following = left[0]
        if following == rank:
            return False
        self._go[following].release()
        return True

    def _can_go_on(self, rank: int) -> bool:
        wait = self._waits.get(rank)
        return self._stuck is not None or wait is None or wait.is_over()
