"""Which shard is next: for each target the least index of its own that is not done.

Targets go on at their own pace, as workers for one may be many and for another few. What is kept
does not grow with the shards that were run, but for one bit each of those that were done before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attnfuzz.actors.targets.registry import target_for

LOOKED_AT = 10_000
"""Indices that are looked at for the next of one target, at a time."""


class ShardNumbers:
    """See the module's docstring. `done` are the indices that were recorded before."""

    def __init__(
        self, seed: int, weights: Mapping[str, float], done: Iterable[int], most: int | None
    ) -> None:
        self._seed = seed
        self._weights = weights
        self._most = most
        self._bits = bytearray()
        for index in done:
            place = index >> 3
            if place >= len(self._bits):
                self._bits.extend(bytes(place + 1 - len(self._bits)))
            self._bits[place] |= 1 << (index & 7)
        self._next = {target: 0 for target, weight in weights.items() if weight}

    def _is_done(self, index: int) -> bool:
        place = index >> 3
        return place < len(self._bits) and bool(self._bits[place] >> (index & 7) & 1)

    def _is_wanted(self, index: int) -> bool:
        return self._most is None or index < self._most

    def _find(self, target: str) -> int | None:
        """The least index that is the target's and not done; None where there is none, or where
        one with so little weight has to be looked for further on."""
        for _ in range(LOOKED_AT):
            index = self._next[target]
            if not self._is_wanted(index):
                return None
            if self._target(index) == target and not self._is_done(index):
                return index
            self._next[target] += 1
        return None

    def _target(self, index: int) -> str:
        return target_for(self._seed, index, self._weights)

    def next(self, takes: Callable[[str], bool]) -> int | None:
        """The least index whose target `takes` one now; None where there is none."""
        found = (self._find(target) for target in self._next if takes(target))
        return min((index for index in found if index is not None), default=None)

    @property
    def left(self) -> bool:
        """Whether there may be one, whoever takes it."""
        for target in self._next:
            self._find(target)
        return any(map(self._is_wanted, self._next.values()))

    def take(self, index: int) -> str:
        """The shard `index`, which `next` gave, is being run; its target."""
        target = self._target(index)
        self._next[target] = index + 1
        return target
