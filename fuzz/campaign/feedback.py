"""Feedback: programs that have shown something new of the compiler are kept, and every second shard
is of their mutants.

Which programs are kept depends on what was run when. So the row of a shard has those that it
brought in, and the row of a shard of mutants has its parents: with the campaign's seed and the
shard's number they are all that its programs follow from. Such shards are numbered apart, as what
the others draw must not depend on them.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

from attnfuzz.actors.shard import MUTANTS, Kept, ShardReport
from attnfuzz.corpus.store.kept import kept_programs
from attnfuzz.corpus.store.rows import KeptLike
from attnfuzz.corpus.store.store import Store
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.seeds import derive

LEAST = 16
"""Programs that are kept before there are mutants of them."""

PARENTS = 12
"""Kept programs that one shard is made of."""

RECENT = 64
"""Half of them are of so many that were kept last."""


class Feedback:
    """See the module's docstring. `store` has what was kept before."""

    def __init__(self, seed: int, store: Store) -> None:
        self._seed = seed
        self._shown: set[str] = set()
        self._pool: dict[str, list[Program]] = defaultdict(list)
        for target, one in store.read(kept_programs):
            self._take(target, one)
        done = [index for index in store.shard_indices() if index >= MUTANTS]
        self._next = max(done, default=MUTANTS - 1) + 1
        self._turn = False

    def receive(self, report: ShardReport) -> tuple[Kept, ...]:
        """Those of the programs that the report brings in which show what no other had."""
        return tuple(one for one in report.kept if self._take(report.target, one))

    def _take(self, target: str, one: KeptLike) -> bool:
        if self._shown.issuperset(one.shows):
            return False
        self._shown.update(one.shows)
        self._pool[target].append(one.program)
        return True

    def number(self, target: str) -> int | None:
        """The number of the shard of mutants that is next, where it is the turn of one."""
        self._turn = not self._turn
        if self._turn or len(self._pool[target]) < LEAST:
            return None
        self._next += 1
        return self._next - 1

    def parents(self, target: str, number: int) -> tuple[Program, ...]:
        """What the shard of that number is made of."""
        random, pool = Random(derive(self._seed, "parents", number)), self._pool[target]
        from_ = [pool[-RECENT:] if place % 2 else pool for place in range(PARENTS)]
        return tuple(some[int(random.random() * len(some))] for some in from_)
