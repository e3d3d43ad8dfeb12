"""Which programs machines died of: one that two died of is not run any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import NodeDiedError, RayActorError, RayError, RayTaskError

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


def of_node(error: RayError) -> bool:
    """Whether a worker's node died, and not only the worker."""
    return isinstance(error, NodeDiedError) or "node has died" in str(error)


def cause_of(error: RayError) -> BaseException:
    """What a worker raised, without Ray's wrapping; of one that could not start Ray keeps the text
    only."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        return cause if isinstance(cause, BaseException) else error
    if isinstance(error, RayActorError) and error.actor_init_failed:
        last = str(error).strip().splitlines()[-1]
        _, found, sentence = last.partition("SandboxError: ")
        return SandboxError(sentence) if found else error
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

    def count(self, slot: Slot, running: Running, blamed: bool) -> bool:
        """Counts that the slot's worker died with its node; True where its task is to run again.
        What took the node may be known, and then no program is `blamed`."""
        try:
            program = ray.get(self.board.at.remote(slot.name), timeout=ANSWER_S)
        except RayError:
            program = None
        if program is not None and blamed:
            machine = slot.host or UNKNOWN
            self._machines.setdefault(program, []).append(machine)
            self._note(program, machine)
        return running.nodes < NODES_A_TASK

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
