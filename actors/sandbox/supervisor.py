"""Watches one run of a program from the fork of its child to its end, and ends it where it has to.

`sandbox.leading` and `sandbox.following` do so where the ranks of a program are on several nodes.
"""

from __future__ import annotations

import select
import signal
import time

from attnfuzz.actors.sandbox import collectives, confine, disk, procs, ranks, stacks, verdict
from attnfuzz.actors.sandbox.attempt import Attempt
from attnfuzz.actors.sandbox.fork_server import ForkServer, ZygoteDied
from attnfuzz.actors.sandbox.job import Limits
from attnfuzz.actors.sandbox.messages import Messages
from attnfuzz.actors.sandbox.watchdog import BLINK_S, GLANCE_S
from attnfuzz.generators.model.outcome import Phase


class Supervisor:
    """See the module's docstring: of `attempt`, whose child `server` has forked and which sends
    `messages`. Methods raise ZygoteDied."""

    def __init__(
        self, attempt: Attempt, messages: Messages, server: ForkServer, limits: Limits
    ) -> None:
        self.attempt, self.server = attempt, server
        self._messages, self._disk_mb = messages, limits.disk_mb

    def run(self) -> None:
        """Returns when the program has ended."""
        poll = select.poll()
        poll.register(self._messages.fd, select.POLLIN)
        poll.register(self.server.link, select.POLLIN)
        while not self._over():
            self._attend()
            if self._over() or self._takes_too_much():
                continue
            left = self.attempt.watchdog.end - time.monotonic()
            if left <= 0 and self._is_late():  # before what is ready: a flood would hold us up
                continue
            seconds = min(max(left, BLINK_S), self._glance)
            ready = {fd for fd, _ in poll.poll(seconds * 1000 + 1)}
            if not ready:
                self._look_closer()
            elif ready - {self._messages.fd}:
                self.attempt.ended = self.server.receive(0.0)
                poll.unregister(self.server.link)
            elif not self.take():
                poll.unregister(self._messages.fd)

    # --- where the ranks are on several nodes

    def _over(self) -> bool:
        return self.attempt.ended is not None

    def _is_told(self) -> bool:
        """Whether all has been said that is to be said of the program."""
        return self.attempt.told

    def _attend(self) -> None:
        """Hears what other nodes say."""

    @property
    def _glance(self) -> float:
        return self.attempt.watchdog.glance

    def _shown(self) -> dict[str, str]:
        """Evidence of a hang."""
        attempt = self.attempt
        return stacks.of_hang(
            attempt.pid, self.server.below(), attempt.directory, native=attempt.native
        )

    # --- what is seen

    def take(self) -> bool:
        """Takes in what the child has sent; False when nothing more will come."""
        received, more = self._messages.read()
        attempt = self.attempt
        for message in received:
            now = time.monotonic()
            given_up = attempt.hang or attempt.overfull or attempt.over_budget
            if attempt.told or attempt.defect or given_up:
                break  # what is sent after a deadline was missed comes too late
            if "setting up" in message:
                attempt.setting_up = message["setting up"]
            elif "refused" in message:
                attempt.refused = message["refused"]
            elif "phase" in message:
                attempt.watchdog.enter(now, Phase(message["phase"]))
            elif "rank" in message:
                self._take_rank(message, now)
            elif "outcome" in message:
                attempt.result = message["outcome"]
                attempt.watchdog.leave(now)
            elif "all ranks ended" in message:
                attempt.ranks_ended = True
                self._all_ended(now)
            elif "defect" in message:
                attempt.defect = message["defect"]
        return more

    def _take_rank(self, message: dict[str, object], now: float) -> None:
        rank, outcome = message["rank"], message["outcome"]
        assert isinstance(rank, int) and isinstance(outcome, dict)
        if rank in self.attempt.stopped and not message["left"]:
            return
        self.attempt.ranks[rank] = outcome
        if outcome["status"] != "passed":
            self.attempt.watchdog.miss(now)

    def _all_ended(self, now: float) -> None:
        self.attempt.watchdog.leave(now)

    def _look(self) -> None:
        now = time.monotonic()
        if self.attempt.watchdog.may_look(now):
            self.attempt.watchdog.look(self.server.below(), now)

    def _look_closer(self) -> None:
        """Looks at a program that says nothing."""
        self._look()
        attempt = self.attempt
        crashed = attempt.ended is None and verdict.fatal_signal(attempt.directory) is not None
        if crashed:
            self._end_if_stuck()
        elif (why := attempt.watchdog.sleeping()) is not None:
            self._hangs(why)
        elif attempt.watchdog.deserted:
            self._stop_the_alone()

    def _end_if_stuck(self) -> None:
        """Ends a program that has had a fatal signal once nothing more of its native stack has come
        from one look to the next."""
        printed = stacks.size_of(self.attempt.directory / confine.STDERR)
        if printed == self.attempt.crash_printed:
            self.end_now()
        self.attempt.crash_printed = printed

    def _is_late(self) -> bool:
        """Ends a program that has missed a deadline."""
        self._look()
        why = self.attempt.watchdog.overdue(time.monotonic())
        if why is not None:
            self._hangs(why)
        return why is not None

    def _takes_too_much(self) -> bool:
        """Looks from time to time at what the program has written and at the CPU time that it has
        used, and ends it where one is too much."""
        attempt = self.attempt
        if attempt.ended is not None or time.monotonic() < attempt.disk_due:
            return False
        session, budget_s = self.server.below(), attempt.job.budget_s
        compiling = attempt.watchdog.phase is Phase.COMPILE and not attempt.told
        if budget_s is not None and compiling:
            attempt.over_budget = procs.cpu_seconds_of_all(session) > budget_s
        if attempt.over_budget:
            self.end_now()
            return True
        found = disk.used(attempt.directory, session)
        attempt.disk_due = time.monotonic() + GLANCE_S
        if found.bytes <= self._disk_mb << 20:
            return False
        if not attempt.told:
            attempt.overfull = {"files": str(found)} | stacks.of_hang(
                attempt.pid, session, attempt.directory, native=False
            )
        self.end_now()
        return True

    # --- what is done

    def _hangs(self, why: str) -> None:
        """A missed deadline: stacks first, then the end of all that runs below the zygote."""
        attempt = self.attempt
        if not self._is_told():
            try:
                evidence = self._shown()
                if (kept := attempt.watchdog.kept) >= 1.0:
                    evidence["kept from the CPUs"] = f"for {kept:.0f} s of that"
            except Exception as error:  # whatever is in its way, the program is ended
                evidence = {"stacks": f"not to be had: {error!r}"}
            attempt.hang = (why, evidence)
        self.end_now()

    def _stop_the_alone(self) -> None:
        """Ends the ranks that wait for one that is gone; the child then says what became of all."""
        attempt, below = self.attempt, set(self.server.below())
        running = ranks.running(attempt.directory)
        collectives.ask(attempt.directory, list(running))
        attempt.stopped |= set(running)
        for pid in below & set(running.values()):
            procs.send(pid, signal.SIGKILL)

    def end_now(self) -> None:
        """Ends all that runs below the zygote."""
        if self.attempt.ended is not None:
            return
        self.server.kill_below()
        self.attempt.ended = self.server.receive(3.0)
        if self.attempt.ended is None:  # stopped by the program, say
            raise ZygoteDied
