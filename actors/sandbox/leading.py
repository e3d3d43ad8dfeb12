"""At the leader of a program whose ranks are on several nodes: it watches rank 0 as any program,
hears how the others are, and decides for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from attnfuzz.actors.sandbox import ports, ranks, stacks
from attnfuzz.actors.sandbox.attempt import Attempt
from attnfuzz.actors.sandbox.fork_server import ForkServer
from attnfuzz.actors.sandbox.job import Job, Limits, Part
from attnfuzz.actors.sandbox.messages import Messages
from attnfuzz.actors.sandbox.parts import (
    ANSWER_S,
    ASK_S,
    SHOW_S,
    START_S,
    Host,
    HostLost,
    Order,
    PartEnd,
    Shown,
    Spread,
    State,
    nodes_said,
    split,
)
from attnfuzz.actors.sandbox.supervisor import Supervisor

PAUSE_S = 0.05


class Others:
    """The parts of a program that other nodes run, from when they prepare themselves."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self._ends: tuple[PartEnd, ...] | None = None

    def ask(self, order: Order) -> list[State]:
        """How each is. Does not wait. Raises HostLost."""
        return [host.ask(order) for host in self.hosts]

    def _until(self, order: Order, done: Callable[[State], bool], within: float) -> list[State]:
        """Waits until all are `done`. Raises HostLost."""
        end = time.monotonic() + within
        while True:
            states = self.ask(order)
            late = [
                host.name
                for host, state in zip(self.hosts, states, strict=True)
                if not (done(state) or state.over)
            ]
            if not late:
                return states
            if time.monotonic() > end:
                raise HostLost(f"{', '.join(late)}: not ready to go on within {within:.0f} s")
            time.sleep(PAUSE_S)

    def prepared(self) -> None:
        """Returns when all can begin. Raises HostLost."""
        self._until(Order.PREPARE, lambda state: state.ready, START_S)

    def shown(self, order: Order) -> dict[str, Shown]:
        """Where the ranks of each are. Raises HostLost."""
        states = self._until(order, lambda state: state.shown is not None, SHOW_S)
        return {h.name: s.shown for h, s in zip(self.hosts, states, strict=True) if s.shown}

    def said(self, spread: Spread, mine: Job) -> dict[str, str]:
        """Evidence: which ranks were where, and what those of other nodes have printed."""
        names = [spread.name, *(host.name for host in self.hosts)]
        parts = split(mine.ranks, len(names))
        texts = {"nodes": nodes_said(names, parts)}
        for name, end in zip(names[1:], self._ends or (), strict=False):
            texts |= {f"{what} on {name}": text for what, text in end.printed.items()}
        return texts

    def abandon(self) -> None:
        """Has all end that have not."""
        for host in self.hosts if self._ends is None else ():
            with suppress(HostLost):
                host.ask(Order.END)

    def end(self) -> tuple[PartEnd, ...]:
        """Ends them all, where they have not ended; what became of each. Raises HostLost."""
        if self._ends is None:
            self._until(Order.END, lambda state: state.over, ANSWER_S)
            self._ends = tuple(host.end() for host in self.hosts)
        return self._ends


class LeadingSupervisor(Supervisor):
    """See the module's docstring. Methods raise HostLost too."""

    def __init__(
        self,
        attempt: Attempt,
        messages: Messages,
        server: ForkServer,
        limits: Limits,
        others: Others,
    ) -> None:
        super().__init__(attempt, messages, server, limits)
        self._others = others
        self._order = Order.RUN
        self._asked = float("-inf")
        self._all_over = False

    def _over(self) -> bool:
        return super()._over() and self._all_over

    @property
    def _glance(self) -> float:
        return PAUSE_S if super()._over() else ASK_S

    def _is_told(self) -> bool:
        return super()._is_told() and self._all_over

    def _all_ended(self, now: float) -> None:
        """Those of this node have; for the others the phase goes on."""

    def _attend(self) -> None:
        now, attempt = time.monotonic(), self.attempt
        if now - self._asked < ASK_S and not super()._over():
            return
        self._asked = now
        states = self._others.ask(self._order)
        attempt.watchdog.hear(
            min((s.asleep for s in states if not s.over), default=float("inf")),
            max(s.kept for s in states),
        )
        if any(state.alone for state in states):
            attempt.watchdog.miss(now)
        self._all_over = all(state.over for state in states)
        if super()._over():
            self.take()
        mine_broke = super()._over() and not attempt.ranks_ended
        others_broke = [
            host for host, s in zip(self._others.hosts, states, strict=True) if s.broken
        ]
        if mine_broke or others_broke:
            self.end_now()

    def _shown(self) -> dict[str, str]:
        attempt = self.attempt
        self._order = Order.SHOW_NATIVE if attempt.native else Order.SHOW
        self._others.ask(self._order)
        if super()._over():
            here = ranks.show(attempt.directory, {}, None)
        else:
            below = self.server.below()
            here = stacks.show(attempt.pid, below, attempt.directory, native=attempt.native)
        return stacks.told(here, self._others.shown(self._order))

    def _stop_the_alone(self) -> None:
        self._order = Order.STOP_ALONE
        self._others.ask(self._order)
        if not super()._over():
            super()._stop_the_alone()

    def end_now(self) -> None:
        """Ends all that runs, on all nodes."""
        super().end_now()
        self._others.end()
        self._all_over = True


@contextmanager
def spread_over(
    spread: Spread, source: str, job: Job, toolchain: str
) -> Iterator[tuple[Job, Others]]:
    """The leader's own part of a program, and those of the others, which prepare themselves; ends
    them when the block ends. Raises HostLost."""
    mine, *theirs = split(job.ranks, 1 + len(spread.hosts))
    others = Others(spread.hosts[: len(theirs)])
    with ports.reserved() as port:
        try:
            for host, some in zip(others.hosts, theirs, strict=True):
                part = Part(ranks=some, address=spread.address, port=port)
                host.begin(source, replace(job, part=part), toolchain)
            part = Part(ranks=mine, address=spread.address, port=port, interface=spread.interface)
            yield replace(job, part=part), others
        finally:
            others.abandon()
