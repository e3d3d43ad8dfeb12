"""A program whose ranks are on several nodes: the part of each node, and what the watchdogs there
say to each other.

The leader's node runs rank 0 and decides. It asks the others several times a second how they are,
and says with that what they are to do. What is not asked for `LEADER_S` ends by itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from attnfuzz.actors.sandbox.collectives import Record, ranks_said
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.generators.model.outcome import Outcome

ASK_S = 0.5
"""How often the leader asks, in seconds."""

ANSWER_S = 30.0
"""Seconds without an answer after which a host counts as lost, and that it may take to end."""

START_S = 900.0
"""Seconds that hosts may take until they can begin: their zygotes may have to be started."""

SHOW_S = 300.0
"""Seconds that hosts may take to show where their ranks are: py-spy has 20 for each, and more than
one try."""

LEADER_S = 2 * SHOW_S
"""Seconds without a question after which a host ends its part: the leader may be showing."""


class HostLost(Exception):
    """A program's ranks cannot go on together: the host of some has died or does not answer, or
    they have lost each other. `args` are the sentence and Ray's id of the node, None where it is
    not known which."""

    @property
    def node(self) -> str | None:
        """Ray's id of the node that is lost, if it is known."""
        return self.args[1] if len(self.args) > 1 else None


def split(ranks: int, nodes: int) -> list[tuple[int, ...]]:
    """The ranks of each node, in order, as equally many as can be; the first have one more. Fewer
    lists than `nodes` where there are fewer ranks."""
    nodes = min(ranks, nodes)
    each, more = divmod(ranks, nodes)
    ends = [each * (place + 1) + min(place + 1, more) for place in range(nodes)]
    return [tuple(range(begin, end)) for begin, end in zip([0, *ends], ends, strict=False)]


class Order(IntEnum):
    """What a host is to do; a later one goes further."""

    PREPARE = 0
    RUN = 1
    STOP_ALONE = 2
    """The ranks that still run wait for one that is gone: end them, and keep what the others left.
    """
    SHOW = 3
    """Something hangs: show where each rank is."""
    SHOW_NATIVE = 4
    """The same with native stacks."""
    END = 5


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Where the ranks of a node are: `evidence` about its processes by name; of each rank `said`,
    a line, and `place`, by which it is compared with others; the `records` of what they did."""

    evidence: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[int, str] = field(default_factory=dict)
    place: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    records: Mapping[int, Record] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class State:
    """How a node's part is. `ready`: it waits for the order to run; `asleep` and `kept` as of
    `Watchdog`; `alone`: one of its ranks has failed or ended before its time; `over`: it has ended,
    `broken`: before its ranks had; `shown` is there once it was ordered."""

    ready: bool = False
    asleep: float = 0.0
    kept: float = 0.0
    alone: bool = False
    over: bool = False
    broken: bool = False
    shown: Shown | None = None


@dataclass(frozen=True, kw_only=True)
class PartEnd:
    """What became of a part: the outcomes and records of its ranks, as far as they have left any;
    `broken` where its processes ended, or were ended, before all ranks had one; what was printed;
    whether the node's kernel has killed for memory meanwhile; what it cost."""

    outcomes: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    records: Mapping[int, Record] = field(default_factory=dict)
    broken: Outcome | None = None
    printed: Mapping[str, str] = field(default_factory=dict)
    oom_killed: bool = False
    cpu_s: float = 0.0
    peak_rss_mb: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The nodes over which a worker spreads the ranks of programs: its own, with that `name`,
    `address` and network `interface`, and the `hosts` of the others."""

    name: str
    address: str
    interface: str | None
    hosts: tuple[Host, ...]


class Host(Protocol):
    """Another node, as the leader sees it."""

    @property
    def name(self) -> str:
        """What its machine is called."""

    def begin(self, source: str, job: Job, toolchain: str) -> None:
        """Has it prepare its part of a program, which `job` names, with `toolchain`: the leader's,
        in place of which it has its own, or another. Raises HostLost."""

    def ask(self, order: Order) -> State:
        """The last that it has said; it is told the order with the next question. Does not wait.
        Raises HostLost."""

    def end(self) -> PartEnd:
        """What became of its part, once that is over. Raises HostLost."""


class Link:
    """At a host, between the thread that runs its part and the one that answers the leader."""

    def __init__(self) -> None:
        self._run = self._ordered_for = ""
        self._order = Order.PREPARE
        self._heard = 0.0
        self.state = State()

    def begin(self, run: str) -> None:
        """Begins the part of the run with that name."""
        self.state, self._heard = State(), time.monotonic()
        self._run = run

    def answer(self, run: str, order: Order) -> State:
        """Takes the order for a run; how the part is."""
        self._ordered_for, self._order, self._heard = run, order, time.monotonic()
        return self.state if self._run == run else State()

    @property
    def order(self) -> Order:
        """What is to be done; to end where nothing was heard for too long."""
        order = self._order if self._ordered_for == self._run else Order.PREPARE
        silence = START_S if order is Order.PREPARE else LEADER_S
        return Order.END if time.monotonic() - self._heard > silence else order


def nodes_said(names: Sequence[str], parts: Sequence[Sequence[int]]) -> str:
    """ "ranks 0 and 1 on a; ranks 2 and 3 on b"."""
    each = zip(names, parts, strict=False)
    return "; ".join(f"{ranks_said(part)} on {name}" for name, part in each)
