"""Which programs machines died of: one that two died of is not run any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import NodeDiedError, RayActorError, RayError, RayTaskError

from attnfuzz.actors.hosts import why_not_started
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.shard import Shard
from attnfuzz.corpus.store.machine_deaths import MACHINES_A_PROGRAM
from attnfuzz.fuzz.pool.slots import Running, Slot
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.program import Program

NODES_A_TASK = 10
"""Nodes that may die of one task, whatever it is at: of preemption, say."""

ANSWER_S = 5.0

UNKNOWN = "a machine of unknown name"


KNOWN_S = 120.0
"""Seconds in which Ray finds out that a node has died; its worker is missed at once."""


@dataclass(frozen=True)
class _Suspect:
    """A task whose worker does not answer any more, the program and the machine that it was at, and
    until when that may be the node's death."""

    running: Running
    program: str | None
    machine: str
    until: float


def of_node(error: RayError) -> bool:
    """Whether a worker's node died, and not only the worker."""
    return isinstance(error, NodeDiedError) or "node has died" in str(error)


def cause_of(error: RayError) -> BaseException:
    """What a worker raised, without Ray's wrapping."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        return cause if isinstance(cause, BaseException) else error
    if isinstance(error, RayActorError) and error.actor_init_failed:
        why = why_not_started(error)
        return SandboxError(why) if why else error
    return error


class Deaths:
    """See the module's docstring. `board` is told by every worker what it is at. `before` are the
    machines that have died earlier, by the program that they were at, and `note` is told the
    program and the machine of each further death."""

    def __init__(
        self,
        before: Mapping[str, Iterable[str]] | None = None,
        note: Callable[[str, str], None] = lambda program, machine: None,
    ) -> None:
        self.board: Any = None
        self._machines = {program: list(died) for program, died in (before or {}).items()}
        self._note = note
        self._suspects: dict[str, list[_Suspect]] = {}

    def count(self, slot: Slot, running: Running, machine: str, blamed: bool) -> bool:
        """Counts that the slot's worker died with a `machine`; True where its task is to run again.
        What took the machine may be known, and then no program is `blamed`."""
        program = self._at(slot)
        if blamed:
            self._blame(program, machine)
        return running.nodes < NODES_A_TASK

    def suspect(self, slot: Slot, running: Running, node: str | None) -> None:
        """What the slot's worker has on `node` does not answer. Whether that node died is known
        some seconds later."""
        if node is not None:
            until = time.monotonic() + KNOWN_S
            found = _Suspect(running, self._at(slot), slot.machine(node), until)
            self._suspects.setdefault(node, []).append(found)

    def settle(self, alive: Container[str], taken: Container[str]) -> None:
        """Counts those nodes of workers that did not answer which are not `alive` any more; no
        program is to blame for those that were `taken`."""
        now = time.monotonic()
        for node in list(self._suspects):
            if node in alive:
                left = [one for one in self._suspects.pop(node) if now < one.until]
                self._suspects.update({node: left} if left else {})
                continue
            for one in self._suspects.pop(node):
                one.running.attempts -= 1
                one.running.nodes += 1
                if node not in taken:
                    self._blame(one.program, one.machine)

    def _at(self, slot: Slot) -> str | None:
        """The program at which the slot's worker was last."""
        try:
            program: str | None = ray.get(self.board.at.remote(slot.name), timeout=ANSWER_S)
        except RayError:
            return None
        return program

    def _blame(self, program: str | None, machine: str) -> None:
        if program is not None:
            self._machines.setdefault(program, []).append(machine or UNKNOWN)
            self._note(program, machine or UNKNOWN)

    @property
    def set_aside(self) -> dict[str, str]:
        """The machines that died, by the ids of the programs that are not run any more."""
        aside = sorted(self._machines.items())
        return {name: ", ".join(of) for name, of in aside if len(of) >= MACHINES_A_PROGRAM}

    def spared(self, shard: Shard) -> Shard:
        """The shard without the programs that are set aside."""
        aside = self.set_aside
        return replace(shard, set_aside=tuple(aside.items())) if aside else shard

    def any_of(self, programs: Iterable[Program]) -> bool:
        """Whether one of the programs is set aside."""
        aside = self.set_aside
        return bool(aside) and any(program_id(one) in aside for one in programs)
