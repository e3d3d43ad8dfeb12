"""The controller with 1, 10, 100 and 1,000 simulated workers: what does it take, and are they busy?

    PYTHONPATH=. python benchmarks/scale.py [--workers 1,10,100,1000] [--seconds 120] [--plot FILE]

Workers are simulated in this process's Ray: a few actors each stand for many, and answer a shard
after the time that its programs would take, with what they would report. The controller, its pool,
Ray's messages and the database are real. A shard of `SHARD_SIZE` programs takes `SHARD_S` seconds,
as measured for real workers (docs/RELIABILITY.md says how long programs take).

"busy" is the share of the workers' time in which they had a shard, from when each has answered its
first one.
The controller's CPU is that of its process, its threads of Ray's included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
from rich.console import Console
from rich.table import Table

from attnfuzz.actors.node import About
from attnfuzz.actors.runs import ReproRun, ReproTask, RunSettings
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.shard import Shard, ShardReport, Tally
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.corpus.store.store import DATABASE, Store
from attnfuzz.fuzz.campaign.config import config_from_data
from attnfuzz.fuzz.campaign.controller import Campaign
from attnfuzz.fuzz.pool import ray_pool
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.fuzz.report.live import Snapshot
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import shard_programs
from benchmarks.simulated import ENVIRONMENT, judged

SHARD_SIZE = 10
SHARD_S = 60.0
SETTLED_S = 1.5 * SHARD_S  # the longest shard: from then on reports come as they always will
HOSTS = 2
WEEK_S = 7 * 24 * 3600


@ray.remote(num_cpus=0, max_concurrency=1200)
class Host:
    """Stands for many workers."""

    def __init__(self) -> None:
        self._programs = shard_programs(1, 0, 200, {"eager": 1.0}, ())

    async def about(self) -> About:
        """As a worker's."""
        return About(node="simulated", host="simulated", pid=os.getpid(), environment=ENVIRONMENT)

    async def run_shard(self, shard: Shard) -> ShardReport:
        """As a worker's, after the time that it would take."""
        await asyncio.sleep(SHARD_S * (0.5 + (shard.index * 7919 % 1000) / 1000))
        tally = Tally(shard)
        for place in range(shard.size):
            program = self._programs[(shard.index * shard.size + place) % len(self._programs)]
            features = tuple(f"feature {(shard.index + place * each) % 400}" for each in range(40))
            tally.add(program, judged(program, features))
        return tally.report(SHARD_S, 1.0)

    async def run_programs(
        self, programs: Sequence[Program], settings: RunSettings
    ) -> list[Outcome]:
        """As a worker's."""
        await asyncio.sleep(SHARD_S / SHARD_SIZE * len(programs))
        return [judged(program) for program in programs]

    async def run_script(self, task: ReproTask) -> list[ReproRun]:
        """As a worker's."""
        await asyncio.sleep(SHARD_S / SHARD_SIZE)
        return [ReproRun(1, "RuntimeError: simulated")] * task.runs


class _Options:
    """In place of `Worker`: a slot gets one of a few actors."""

    hosts: list[Any] = []
    given = 0

    @classmethod
    def options(cls, **_: Any) -> type[_Options]:
        return cls

    @classmethod
    def remote(cls, *_: Any) -> Any:
        if not cls.hosts:
            cls.hosts = [Host.remote() for _ in range(HOSTS)]  # type: ignore[attr-defined]
        cls.given += 1
        return cls.hosts[cls.given % len(cls.hosts)]


@dataclass(frozen=True)
class Measured:
    """What a number of workers took of the controller."""

    workers: int
    seconds: float
    busy: float
    cpu: float
    memory_mb: float
    shards: int
    database_mb: float
    """By which the database grew meanwhile."""

    @property
    def week_gb(self) -> float:
        """Of the database after a week at that pace, if it grows as it did."""
        return self.database_mb / 1024 * WEEK_S / self.seconds


def measure(workers: int, seconds: float) -> Measured:
    """A campaign with so many workers, for so long after all have started."""
    config = config_from_data(
        {
            "seed": 1, "minutes": 2 * (SETTLED_S + seconds) / 60 + 5, "shard_size": SHARD_SIZE,
            "profiles": {"eager": 1}, "workers": min(workers, 1024), "variants": False,
            "shipped": True, "steering": True, "minimize": {"max_candidates": 20},
        },
        "scale",
    )  # fmt: skip
    busy: list[tuple[float, int, float]] = []
    grown: list[float] = []
    process = psutil.Process()

    def cpu() -> float:
        times = process.cpu_times()
        return times.user + times.system

    with tempfile.TemporaryDirectory(prefix="scale-") as made, Scratch.create() as scratch:
        ray_pool.Worker = _Options
        _Options.hosts, _Options.given = [], 0
        pool = RayPool(WorkerConfig(scratch=str(scratch.root)), workers)
        with Store(made) as store:
            store.begin(1, config.model_dump(mode="json"), pool.environment())
            campaign = Campaign(config, Path(made), pool, store, scratch=scratch.root,
                                on_snapshot=lambda now: watch(now))  # fmt: skip
            began: list[float] = []

            def watch(now: Snapshot) -> None:
                if not began and now.busy == workers:
                    began.append(time.monotonic())
                if began and time.monotonic() - began[0] > SETTLED_S:
                    busy.append((time.monotonic(), now.busy, cpu()))
                    if not grown:
                        grown.append(_pages_mb(Path(made) / DATABASE))
                    if time.monotonic() - began[0] > SETTLED_S + seconds:
                        campaign.stop()

            campaign.run()
            shards = store.totals().shards
        grown.append(_pages_mb(Path(made) / DATABASE))
        pool.close()
    (first, _, cpu_first), (last, _, cpu_last) = busy[0], busy[-1]
    spans = [(b[0] - a[0], a[1]) for a, b in zip(busy, busy[1:], strict=False)]
    share = sum(span * at for span, at in spans) / (workers * (last - first))
    return Measured(
        workers, last - first, share, (cpu_last - cpu_first) / (last - first),
        process.memory_info().rss / 2**20, shards, grown[-1] - grown[0],
    )  # fmt: skip


def _pages_mb(database: Path) -> float:
    """The size of a database without its journal."""
    with closing(sqlite3.connect(database)) as connection:
        (count,), (size,) = (
            connection.execute(f"PRAGMA page_{what}").fetchone() for what in ("count", "size")
        )
    return float(count * size / 2**20)


def plot(measured: Sequence[Measured], file: Path) -> None:
    """Busy share and the controller's CPU and memory by workers."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    at = [one.workers for one in measured]
    for axis, name, values in (
        (axes[0], "workers busy, %", [100 * one.busy for one in measured]),
        (axes[1], "controller, cores", [one.cpu for one in measured]),
        (axes[2], "controller, MiB", [one.memory_mb for one in measured]),
    ):
        axis.plot(at, values, "o-")
        axis.set(xscale="log", xlabel="simulated workers", title=name, ylim=(0, max(values) * 1.2))
    figure.savefig(file)


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--workers", default="1,10,100,1000")
    options.add_argument("--seconds", type=float, default=120.0)
    options.add_argument("--plot", type=Path)
    chosen = options.parse_args(arguments)
    measured = []
    for workers in map(int, chosen.workers.split(",")):
        measured.append(measure(workers, chosen.seconds))
        print(measured[-1], file=sys.stderr, flush=True)
    shown = Table("simulated workers", "busy", "controller's CPU", "memory", "database in a week")
    for one in measured:
        shown.add_row(
            f"{one.workers:,}", f"{one.busy:.1%}", f"{one.cpu:.2f} cores",
            f"{one.memory_mb:,.0f} MiB", f"{one.week_gb:.1f} GiB",
        )  # fmt: skip
    Console(width=100).print(shown)
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"shards of {SHARD_SIZE} programs take {SHARD_S:.0f} s on average; "
        f"{chosen.seconds:.0f} s measured; "
        f"{platform.platform()}, {os.cpu_count()} cores, load {load}"
    )
    if chosen.plot:
        plot(measured, chosen.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
