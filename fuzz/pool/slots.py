"""The slots of a pool: places for one worker each, and the nodes on which they are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from attnfuzz.actors.node import About
from attnfuzz.fuzz.pool.groups import WorkerGroup, room, without_spread
from attnfuzz.fuzz.pool.tasks import Handle, Task

LOOK_S = 2.0

AS_MEANT = (1, 3, 4)
"""Of Ray's reasons why a node is gone, those that no program is to blame for: it was ended, or its
cloud or the autoscaler has taken it (`NodeDeathInfo.Reason`)."""


@dataclass
class Running:
    """A task that is given out, to workers with that `hardware` if it needs one: `attempts` is how
    often its worker died, `nodes` how often with its node."""

    handle: Handle
    task: Task
    hardware: str | None = None
    attempts: int = 0
    nodes: int = 0


@dataclass(eq=False)
class Slot:
    """A place for one worker of `group`, on `node` if it is bound to one.

    Without an `actor` it is started at `due` (monotonic seconds); while `about` is None it starts;
    then it is idle, or at its `running` task. `failures` counts how often in a row it could not
    start, or its sandbox could not; `served` whether it ever has. `hardware` is what its last
    worker had that others of its target may not (see `WorkerGroup.hardware`), None where all are
    alike, and `host` the name of that one's machine. `placement` is the placement group of one
    that is on several nodes.
    """

    group: WorkerGroup
    name: str
    node: str | None = None
    actor: Any = None
    placement: Any = None
    about: About | None = None
    hardware: str | None = None
    host: str = ""
    running: Running | None = None
    failures: int = 0
    served: bool = False
    due: float = 0.0

    @property
    def state(self) -> str:
        """waiting, starting, idle or busy."""
        if self.actor is None:
            return "waiting"
        if self.about is None:
            return "starting"
        return "idle" if self.running is None else "busy"

    @property
    def at(self) -> str | None:
        """Ray's id of its node, as far as it is known."""
        return self.about.node if self.about is not None else self.node

    @property
    def nodes(self) -> dict[str, str]:
        """The names of the machines on which its worker is, by Ray's ids of the nodes."""
        if self.about is None:
            return {} if self.node is None else {self.node: self.host}
        return {one.node: one.host for one in (self.about, *self.about.others)}

    def lost(self, alive: Container[str]) -> str | None:
        """The first node of its worker that is not among those `alive`, if any."""
        return next((node for node in self.nodes if node not in alive), None)

    def machine(self, node: str | None) -> str:
        """The name of the machine of that node; of its own where it is none of its worker's."""
        return self.nodes.get(node or "", self.host)

    def fits(self, target: str | None, hardware: str | None) -> bool:
        """Whether its worker runs what is for `target`, on that hardware (None: on any)."""
        return self.group.serves(target) and (hardware is None or hardware == self.hardware)


class Nodes:
    """The nodes of the cluster, looked at every `LOOK_S` seconds by a thread of its own: where
    Ray's control store is away, asking takes until it is back."""

    def __init__(self) -> None:
        self.alive: dict[str, Mapping[str, float]] = {}
        """Resources by the id of the node."""
        self.taken: frozenset[str] = frozenset()
        """Ids of the nodes that are gone as somebody meant it."""
        self.seen = 0
        """How often the nodes were looked at."""
        self._ended = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._watch, name="nodes", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        there = ray.nodes()
        self.alive = {one["NodeID"]: one["Resources"] for one in there if one["Alive"]}
        gone = (one for one in there if not one["Alive"])
        meant = (one["NodeID"] for one in gone if one.get("DeathReason") in AS_MEANT)
        self.taken = frozenset(meant)
        self.seen += 1

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            with contextlib.suppress(Exception):  # the control store is away, or Ray is shut down
                self._look()

    def close(self) -> None:
        """Ends the thread."""
        self._ended.set()


def wanted(
    groups: Sequence[WorkerGroup], alive: Mapping[str, Mapping[str, float]]
) -> dict[tuple[int, str], int]:
    """How many workers of each group, by its place, each node is to have, where the group's count
    is open. Room is left for those that are on several nodes."""
    left = without_spread(groups, alive)
    return {
        (place, node): count
        for node, resources in left.items()
        for place, count in enumerate(room(groups, resources))
        if groups[place].count is None
    }
