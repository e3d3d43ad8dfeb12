"""Does a zygote stay as it was, and its programs unaffected by each other?

    PYTHONPATH=. python benchmarks/steady.py [--programs 10000] [--compare 200] [--workers 2]

Runs the programs of eager shards in the zygotes of a pool and prints how much memory each zygote
has after its first programs and after its last. Then a random choice of the programs, told by the
seed, runs again, each in a zygote of its own that has run nothing: every outcome must be what it
was (status, kind, key). What one that differs does in several runs is told, as some fail by chance.
"""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import psutil
import typer
from rich.console import Console

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.pool.pool import run_all
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.fuzz.pool.tasks import RunTask
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import shard_programs

SHARD = 10
AGAIN = 5
MIB = 1 << 20


def zygotes() -> dict[int, float]:
    """MiB that each zygote has for itself or shares (RSS), by process id."""
    found = {}
    for process in psutil.process_iter(["cmdline", "ppid"]):
        command = process.info["cmdline"] or []
        # A child of a zygote has its command line too.
        if any(part.endswith("actors/sandbox/zygote.py") for part in command):
            found[process.pid] = (process.info["ppid"], process.memory_info().rss / MIB)
    return {pid: rss for pid, (parent, rss) in found.items() if parent not in found}


def told(program: Program, outcome: Outcome) -> str:
    """What has to be the same: status, and a failure's kind and key."""
    if outcome.failure is None:
        return f"{outcome.status} {outcome.rejection or ''}".strip()
    return f"{outcome.failure.kind.value} {signature(outcome.failure, program).strong}"


def alone(config: WorkerConfig, program: Program) -> str:
    with Executor(config) as executor:
        return told(program, executor.run_programs([program])[0])


def main(
    programs: Annotated[int, typer.Option(help="Programs in one pool.")] = 10_000,
    compare: Annotated[int, typer.Option(help="How many run alone as well.")] = 200,
    workers: Annotated[int, typer.Option(help="Workers, one CPU each.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the programs and of the choice.")] = 1,
) -> None:
    console = Console(width=110)
    drawn = [
        shard_programs(seed, index, SHARD, {"eager": 1.0}) for index in range(programs // SHARD)
    ]
    words: list[str] = []
    with Scratch.create() as scratch:
        config = WorkerConfig(scratch=str(scratch.root))
        pool = RayPool(config, workers)
        began = time.monotonic()
        stretch = max(1, len(drawn) // 20)
        first: dict[int, float] = {}
        for start in range(0, len(drawn), stretch):
            tasks = [RunTask(tuple(shard)) for shard in drawn[start : start + stretch]]
            for task, finished in zip(tasks, run_all(pool, tasks), strict=True):
                outcomes = finished.result
                assert isinstance(outcomes, list), outcomes
                words += [
                    told(program, outcome)  # type: ignore[arg-type]
                    for program, outcome in zip(task.programs, outcomes, strict=True)
                ]
            now = zygotes()
            first = first or now
            sizes = ", ".join(f"{pid}: {mib:.1f} MiB" for pid, mib in sorted(now.items()))
            console.print(f"{len(words):6} programs, {time.monotonic() - began:6.0f} s  {sizes}")
        grown = [now[pid] / first[pid] - 1 for pid in now if pid in first]
        pool.close()
        console.print(
            f"memory of the zygotes: {max(grown, default=0):+.1%} at most since the first stretch; "
            f"{len(now.keys() - first.keys())} were started later"
        )
        flat = [program for shard in drawn for program in shard]
        chosen = sorted(random.Random(seed).sample(range(len(flat)), min(compare, len(flat))))
        with ThreadPoolExecutor(workers) as threads:
            by_itself = list(threads.map(lambda place: alone(config, flat[place]), chosen))
        differ = [
            (place, word)
            for place, word in zip(chosen, by_itself, strict=True)
            if word != words[place]
        ]
        for place, word in differ:
            console.print(f"program {place}: {words[place]} in the pool, {word} alone")
            with Executor(config) as executor:
                again = executor.run_programs([flat[place]] * AGAIN)
            seen = sorted({told(flat[place], outcome) for outcome in again})
            console.print(f"  in one zygote, {AGAIN} times: {', '.join(seen)}")
        console.print(f"{len(chosen) - len(differ)} of {len(chosen)} alone as in the pool")
    sys.exit(1 if differ or max(grown, default=0) > 0.05 else 0)


if __name__ == "__main__":
    typer.run(main)
