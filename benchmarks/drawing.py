"""How many programs are drawn in a CPU second.

    python benchmarks/drawing.py [--seed 1] [--count 2000] [--profile mixed]

A line for each size of a shard: every shard has a swarm of its own, whose strategies are made
first.
"""

from __future__ import annotations

import argparse
import platform
import time
from itertools import islice

from attnfuzz.generators.strategies.shards import stream

SIZES = (10, 50, 1000)
WARM_UP = 50


def rate(seed: int, count: int, profile: str, size: int) -> float:
    """Programs in a CPU second of this process, in shards of that size."""
    list(islice(stream(seed + 1, None, profile, shard_size=size), WARM_UP))
    began = time.process_time()
    drawn = list(islice(stream(seed, None, profile, shard_size=size), count))
    return len(drawn) / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--profile", default="mixed")
    args = parser.parse_args()
    print(f"{args.count} programs of {args.profile}, seed {args.seed}, {platform.processor()}")
    for size in SIZES:
        programs = rate(args.seed, args.count, args.profile, size)
        print(f"shards of {size:4}: {programs:6.0f} programs in a CPU second")


if __name__ == "__main__":
    main()
