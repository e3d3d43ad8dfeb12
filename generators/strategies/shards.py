"""Shards: programs by the seed. A shard is a swarm and the programs drawn from it.

`generate(seed, n)` gives the same programs everywhere; it begins with the programs of
`generate(seed, m)` for m < n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.programs import programs
from attnfuzz.generators.strategies.provider import collect
from attnfuzz.generators.strategies.seeds import derive
from attnfuzz.generators.strategies.swarm import (
    CPU,
    Place,
    Swarm,
    UserFunction,
    profile_for,
    swarm_for,
)

SHARD_SIZE = 50


def generate(
    seed: int, count: int, swarm: Swarm | None = None, profile: str = "mixed"
) -> list[Program]:
    """Exactly `count` programs. With a `swarm` all come from it (and `profile` is the swarm's own);
    otherwise each shard of `SHARD_SIZE` draws one. Raises ValueError for an unknown profile."""
    return list(islice(stream(seed, swarm, profile), count))


def stream(
    seed: int,
    swarm: Swarm | None = None,
    profile: str = "mixed",
    *,
    shard_size: int = SHARD_SIZE,
    place: Place = CPU,
    functions: tuple[UserFunction, ...] = (),
) -> Iterator[Program]:
    """The endless sequence that `generate` gives the beginning of, made shard by shard; with
    another `shard_size`, `place` and `functions` that of a campaign of one profile."""
    index = 0
    while True:
        chosen = swarm or swarm_for(seed, index, profile, functions, place)
        yield from _shard(derive(seed, "shard", index), shard_size, chosen)
        index += 1


def shard_programs(
    campaign_seed: int,
    shard_index: int,
    size: int,
    profiles: Mapping[str, float],
    functions: tuple[UserFunction, ...] = (),
    place: Place = CPU,
) -> list[Program]:
    """The `size` programs of one shard of a campaign: a pure function of the arguments, whichever
    worker asks. `profiles` are relative weights by name; see `swarm.PROFILES`. The
    programs are for `place`."""
    profile = profile_for(campaign_seed, shard_index, profiles)
    swarm = swarm_for(campaign_seed, shard_index, profile, functions, place)
    return _shard(derive(campaign_seed, "shard", shard_index), size, swarm)


def _shard(seed: int, size: int, swarm: Swarm) -> list[Program]:
    drawn = collect(programs(swarm), seed, size)
    return [
        replace(program, seed=derive(seed, "program", i) & 0x7FFFFFFF)
        for i, program in enumerate(drawn)
    ]
