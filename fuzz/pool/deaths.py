"""Which programs machines died of: one that two died of is not run any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import NodeDiedError, RayError

from attnfuzz.actors.shard import Shard
from attnfuzz.fuzz.pool.slots import Running
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.program import Program

NODES_A_PROGRAM = 2
"""Nodes that may die while one program runs."""

NODES_A_TASK = 10
"""Nodes that may die of one task, whatever it is at: of preemption, say."""

ANSWER_S = 5.0


def of_node(error: RayError) -> bool:
    """Whether a worker's node died, and not only the worker."""
    return isinstance(error, NodeDiedError) or "node has died" in str(error)


class Deaths:
    """See the module's docstring. `board` is told by every worker what it is at."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self._counts: Counter[str] = Counter()
        self.set_aside: set[str] = set()
        """Ids of programs that are not run any more."""

    def count(self, worker: str, running: Running, blamed: bool) -> bool:
        """Counts that the worker died with its node; True where its task is to run again. What
        took the node may be known, and then no program is `blamed`."""
        try:
            program = ray.get(self._board.at.remote(worker), timeout=ANSWER_S)
        except RayError:
            program = None
        if program is not None and blamed:
            self._counts[program] += 1
            if self._counts[program] >= NODES_A_PROGRAM:
                self.set_aside.add(program)
        return running.nodes < NODES_A_TASK

    def spared(self, shard: Shard) -> Shard:
        """The shard without the programs that are set aside."""
        return replace(shard, set_aside=frozenset(self.set_aside)) if self.set_aside else shard

    def any_of(self, programs: Iterable[Program]) -> bool:
        """Whether one of the programs is set aside."""
        return bool(self.set_aside) and any(program_id(one) in self.set_aside for one in programs)
