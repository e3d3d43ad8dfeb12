"""Which shard is next: for each target the least index of its own that is not done, or with
`profiles` for each of its profiles, whose turn it is.

Targets go on at their own pace, as workers for one may be many and for another few. What is kept
does not grow with the shards that were run, but for one bit each of those that were done before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attnfuzz.actors.shard import MUTANTS
from attnfuzz.actors.targets.registry import target_for
from attnfuzz.generators.strategies.swarm import profile_for

LOOKED_AT = 10_000
"""Indices that are looked at for the next of one target, at a time."""


Stream = tuple[str, str | None]
"""A target and, where they have turns, a profile."""


class ShardNumbers:
    """See the module's docstring. `done` are the indices that were recorded before; `profiles` are
    those of each target, with their weights."""

    def __init__(
        self,
        seed: int,
        weights: Mapping[str, float],
        done: Iterable[int],
        most: int | None,
        profiles: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self._seed = seed
        self._weights = weights
        self._most = most
        self._bits = bytearray()
        for index in (one for one in done if one < MUTANTS):
            place = index >> 3
            if place >= len(self._bits):
                self._bits.extend(bytes(place + 1 - len(self._bits)))
            self._bits[place] |= 1 << (index & 7)
        self._profiles = profiles
        self._next: dict[Stream, int] = {
            (target, name): 0
            for target, weight in weights.items()
            if weight
            for name in (_named(profiles[target]) if profiles else [None])
        }

    def _is_done(self, index: int) -> bool:
        place = index >> 3
        return place < len(self._bits) and bool(self._bits[place] >> (index & 7) & 1)

    def _is_wanted(self, index: int) -> bool:
        return self._most is None or index < self._most

    def _find(self, stream: Stream) -> int | None:
        """The least index that is the stream's and not done; None where there is none, or where
        one with so little weight has to be looked for further on."""
        for _ in range(LOOKED_AT):
            index = self._next[stream]
            if not self._is_wanted(index):
                return None
            if not self._is_done(index) and self._stream(index) == stream:
                return index
            self._next[stream] += 1
        return None

    def _stream(self, index: int) -> Stream:
        target = self._target(index)
        if self._profiles is None:
            return target, None
        return target, profile_for(self._seed, index, self._profiles[target])

    def _target(self, index: int) -> str:
        return target_for(self._seed, index, self._weights)

    def next(
        self,
        takes: Callable[[str], bool],
        turn: Callable[[str, str], float] = lambda target, profile: 0.0,
    ) -> int | None:
        """The least index whose target `takes` one now, of the profile for which `turn` gives
        least; None where there is none."""
        there = [stream for stream in self._next if takes(stream[0])]
        found = [(index, one) for one in there if (index := self._find(one)) is not None]
        turns = [(0.0 if name is None else turn(target, name), i) for i, (target, name) in found]
        return min(turns)[1] if turns else None

    @property
    def left(self) -> bool:
        """Whether there may be one, whoever takes it."""
        for stream in self._next:
            self._find(stream)
        return any(map(self._is_wanted, self._next.values()))

    def take(self, index: int) -> str:
        """The shard `index`, which `next` gave, is being run; its target."""
        stream = self._stream(index)
        self._next[stream] = index + 1
        return stream[0]


def _named(weights: Mapping[str, float]) -> list[str]:
    return [name for name, weight in weights.items() if weight > 0]
