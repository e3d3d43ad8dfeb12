"""At a host of a program whose ranks are on several nodes: it watches those that run there, says
how they are, and does what the leader orders."""

from __future__ import annotations

import math
import time
from dataclasses import fields

from attnfuzz.actors.sandbox import collectives, stacks, verdict
from attnfuzz.actors.sandbox.activity import KEPT
from attnfuzz.actors.sandbox.attempt import Attempt
from attnfuzz.actors.sandbox.fork_server import ForkServer
from attnfuzz.actors.sandbox.job import Deadlines, Limits
from attnfuzz.actors.sandbox.messages import Messages
from attnfuzz.actors.sandbox.parts import ASK_S, Link, Order, PartEnd, Shown, State
from attnfuzz.actors.sandbox.supervisor import Supervisor
from attnfuzz.generators.model.outcome import Outcome

PAUSE_S = 0.05


class FollowingSupervisor(Supervisor):
    """See the module's docstring."""

    def __init__(
        self, attempt: Attempt, messages: Messages, server: ForkServer, limits: Limits, link: Link
    ) -> None:
        super().__init__(attempt, messages, server, limits)
        self._link = link
        self._shown_once: Shown | None = None
        self._stopped = False

    @property
    def _glance(self) -> float:
        return ASK_S

    def _attend(self) -> None:
        attempt, order = self.attempt, self._link.order
        if order is Order.END:
            self.attempt.cut_off = True
            self.end_now()
            return
        if order is Order.STOP_ALONE and not self._stopped:
            self._stopped = True
            super()._stop_the_alone()
        if order in (Order.SHOW, Order.SHOW_NATIVE) and self._shown_once is None:
            native = order is Order.SHOW_NATIVE
            below = self.server.below()
            self._shown_once = stacks.show(attempt.pid, below, attempt.directory, native=native)
        self._link.state = State(
            ready=True,
            asleep=attempt.watchdog.asleep,
            kept=attempt.watchdog.kept_in_all,
            alone=attempt.watchdog.alone is not None,
            shown=self._shown_once,
        )

    def _stop_the_alone(self) -> None:
        """The leader says when: somebody elsewhere may still be at work."""


def patient(deadlines: Deadlines) -> Deadlines:
    """Those of a host: the leader, which hears the phases, decides before they are over."""
    longest = (1 + KEPT) * deadlines.total
    return Deadlines(**{one.name: longest for one in fields(deadlines)} | {"idle": math.inf})


def may_run(link: Link) -> bool:
    """Says that all is prepared, and waits until the part is to run; False where it is not."""
    link.state = State(ready=True)
    while (order := link.order) is Order.PREPARE:
        time.sleep(PAUSE_S)
    return order is not Order.END


def ended(attempt: Attempt, outcome: Outcome, ending: verdict.Ending) -> PartEnd:
    """What became of a part, whose child would have that `outcome` by itself."""
    part = attempt.job.part
    assert part is not None
    complete = attempt.ranks_ended or attempt.cut_off
    return PartEnd(
        outcomes=attempt.ranks,
        records=collectives.read(attempt.directory, part.ranks),
        broken=None if complete else outcome,
        printed=verdict.printed(attempt.directory),
        oom_killed=ending.oom_killed,
        cpu_s=ending.cost.cpu_s,
        peak_rss_mb=ending.cost.peak_rss_mb,
    )
