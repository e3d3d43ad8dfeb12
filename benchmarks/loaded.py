"""Is a slow machine ever called a hang?

    PYTHONPATH=. python benchmarks/loaded.py [--passing 1000] [--busy 4] [--workers 2]

Runs programs of every kind with the deadlines of configs/overnight.yaml while other processes keep
every core busy, until `--passing` of them have passed. What is called a hang then runs again with
nothing beside it: if it ends there, it was a false one.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.campaign.config import load_config
from attnfuzz.fuzz.pool.opened import outcomes
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.generators.model.codec import dump_program
from attnfuzz.generators.model.outcome import DEADLINE, FailureKind, Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import shard_programs

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "overnight.yaml"
SHARDS = 10
"""As many make a line of the output."""
SPIN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


def is_hang(outcome: Outcome) -> bool:
    return outcome.failure is not None and outcome.failure.kind is FailureKind.HANG


def main(
    passing: Annotated[int, typer.Option(help="Programs that have to pass.")] = 1000,
    busy: Annotated[int, typer.Option(help="Processes that spin beside them.")] = 4,
    workers: Annotated[int, typer.Option(help="Workers, one CPU each.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the programs.")] = 1,
    first: Annotated[int, typer.Option(help="Shard to begin with.")] = 0,
) -> None:
    console = Console(width=110)
    config = load_config(CONFIG)
    size, profiles = config.shard_size, dict(config.profiles)
    words: Counter[str] = Counter()
    hung: list[Program] = []
    patience = 0
    with Scratch.create() as scratch:
        deadlines = config.deadlines
        pool = RayPool(WorkerConfig(scratch=str(scratch.root), deadlines=deadlines), workers)
        # Each in a session of its own: Linux may share out the CPUs by session.
        command = [sys.executable, "-c", SPIN]
        spinning = [subprocess.Popen(command, start_new_session=True) for _ in range(busy)]
        began = time.monotonic()
        try:
            for start in itertools.count(first, SHARDS):
                shards = range(start, start + SHARDS)
                drawn = [p for i in shards for p in shard_programs(seed, i, size, profiles)]
                told = outcomes(pool, drawn)
                words.update(o.failure.kind.value if o.failure else o.status for o in told)
                for program, outcome in zip(drawn, told, strict=True):
                    if is_hang(outcome):
                        hung.append(program)
                        raised = outcome.failure.raised if outcome.failure else None
                        console.print(f"hang: {raised.message if raised else 'not said why'}")
                        console.print(dump_program(program), highlight=False, soft_wrap=True)
                patience += sum(DEADLINE in outcome.skipped for outcome in told)
                took = time.monotonic() - began
                before = f"{took:6.0f} s beside {busy} processes, shards to {shards.stop - 1}"
                console.print(f"{before}: {dict(words)}")
                if words["passed"] >= passing:
                    break
        finally:
            for process in spinning:
                process.kill()
                process.wait()
        console.print(f"{patience} missed a deadline and ended with a longer one")
        real = sum(is_hang(outcome) for outcome in outcomes(pool, hung))
        pool.close()
    console.print(f"{len(hung)} called a hang, {len(hung) - real} of them falsely")
    sys.exit(1 if len(hung) > real else 0)


if __name__ == "__main__":
    typer.run(main)
