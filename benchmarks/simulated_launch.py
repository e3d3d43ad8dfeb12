"""`attnfuzz launch` with simulated workers: `python -m benchmarks.simulated_launch CONFIG …`."""

from __future__ import annotations

import sys

from attnfuzz.fuzz.cli.app import main
from attnfuzz.fuzz.pool import ray_pool
from benchmarks.simulated import SimulatedWorker

if __name__ == "__main__":
    ray_pool.Worker = SimulatedWorker
    print("simulated workers: no program runs", file=sys.stderr, flush=True)
    sys.exit(main(["launch", *sys.argv[1:]]))
