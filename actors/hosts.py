"""The other nodes of a worker that spreads the ranks of programs over several: each has a worker
like it, which is started by it, runs the parts that it is given, and ends with it."""

from __future__ import annotations

import platform
import secrets
import time
from dataclasses import dataclass
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from attnfuzz.actors.node import About, Away
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.actors.sandbox.parts import ANSWER_S, HostLost, Order, PartEnd, Spread, State
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.worker import WorkerConfig

AT_ONCE = 2
"""Calls that a host serves at a time: the one that runs a part, and the leader's questions."""


@dataclass(frozen=True)
class Placement:
    """The placement group of a worker, with a bundle for each of its `nodes`, of which its own is
    the first; `options` are what Ray is to give to an actor in any of them."""

    group: Any
    nodes: int
    options: dict[str, Any]

    def options_of(self, bundle: int) -> dict[str, Any]:
        """The options of the actor in that bundle."""
        place = PlacementGroupSchedulingStrategy(
            placement_group=self.group, placement_group_bundle_index=bundle
        )
        return self.options | {"scheduling_strategy": place}


def why_not_started(error: RayActorError) -> str | None:
    """The sentence of the SandboxError for which an actor could not start; None where it is of
    something else. Of what an actor raises then Ray keeps the text only."""
    last = str(error).strip().splitlines()[-1]
    _, found, sentence = last.partition("SandboxError: ")
    return sentence if error.actor_init_failed and found else None


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has the address."""
    there = psutil.net_if_addrs().items()
    return next((name for name, of in there if any(one.address == address for one in of)), None)


def name_of(place: int, host: str) -> str:
    """What a node is called: nodes of one machine have its name in common."""
    return f"node {place} ({host})"


class Hosts:
    """The workers on the other nodes of `placement`, of the same class `kind` as the one that
    starts them."""

    def __init__(
        self, kind: type, placement: Placement, config: WorkerConfig, away: Away | None
    ) -> None:
        actor = ray.remote(kind)
        self._all = []
        for bundle in range(1, placement.nodes):
            options = placement.options_of(bundle)
            made = actor.options(max_restarts=0, max_concurrency=AT_ONCE, **options)
            started = made.remote(config, away)
            self._all.append(RemoteHost(started, bundle))

    def spread(self, toolchain: str) -> Spread:
        """What the leader's sandbox is told of them; `toolchain` is its own."""
        address = ray.util.get_node_ip_address()
        for host in self._all:
            host.own_toolchain = toolchain
        name = name_of(0, platform.node())
        return Spread(
            name=name, address=address, interface=interface_of(address), hosts=tuple(self._all)
        )

    def about(self) -> tuple[About, ...]:
        """What and where they are, once they have started. Raises SandboxError where programs
        cannot run there."""
        return tuple(host.started() for host in self._all)


class RemoteHost:
    """A host as the leader sees it: a `parts.Host`."""

    def __init__(self, actor: Any, place: int) -> None:
        self._actor, self._place = actor, place
        self._about: About | None = None
        self.own_toolchain = ""
        self._run = ""
        self._part: Any = None
        self._end: PartEnd | None = None
        self._question: Any = None
        self._sent = Order.PREPARE
        self._asked = 0.0
        self._state = State()

    def started(self) -> About:
        """What and where it is. Raises SandboxError."""
        try:
            self._about = ray.get(self._actor.about.remote())
        except RayActorError as error:
            why = why_not_started(error)
            raise SandboxError(why or f"a host of ranks: {_first_line(error)}") from error
        return self._about

    @property
    def name(self) -> str:
        return name_of(self._place, self._about.host if self._about else "")

    def begin(self, source: str, job: Job, toolchain: str) -> None:
        self._run = secrets.token_hex(8)
        other = None if toolchain == self.own_toolchain else toolchain
        self._part = self._actor.run_part.remote(self._run, source, job, other)
        self._end = self._question = None
        self._state, self._sent = State(), Order.PREPARE

    def ask(self, order: Order) -> State:
        try:
            self._hear(order)
        except RayTaskError as error:
            if isinstance(error.cause, SandboxError | OSError):
                raise error.cause from error
            raise
        except RayError as error:
            raise self._lost(_first_line(error)) from error
        if self._end is None and time.monotonic() - self._asked > ANSWER_S:
            raise self._lost(f"no answer for {ANSWER_S:.0f} s")
        return self._state

    def _hear(self, order: Order) -> None:
        if self._end is not None:
            return
        if _has_come(self._part):
            end: PartEnd = ray.get(self._part)
            self._end = end
            self._state = State(ready=True, over=True, broken=end.broken is not None)
            return
        if self._question is not None and _has_come(self._question):
            self._state, self._question = ray.get(self._question), None
        if self._question is None or order is not self._sent:
            if self._question is None:
                self._asked = time.monotonic()
            self._question = self._actor.attend.remote(self._run, order)
            self._sent = order

    def end(self) -> PartEnd:
        assert self._end is not None
        return self._end

    def _lost(self, why: str) -> HostLost:
        return HostLost(f"{self.name}: {why}", self._about.node if self._about else None)


def _has_come(ref: Any) -> bool:
    return bool(ray.wait([ref], timeout=0)[0])


def _first_line(error: RayError) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
