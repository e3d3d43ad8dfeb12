"""Programs per CPU-minute, what of it is the harness, and whether a second worker helps.

    python benchmarks/throughput.py [--seed 1] [--inductor 40] [--eager 400] [--json]
    python benchmarks/throughput.py --where 40 [--profiles inductor-sdpa inductor-flex]
    python benchmarks/throughput.py --virtual 40 --toolchain .venv-kernels/bin/python

CPU seconds are those of the programs' processes (g++ included) and of the harness: drawing,
rendering, watching and forking. Starting the fork server (importing torch once) is not counted.

The second form runs so many programs of each profile, then the same again under a profiler that
looks at the stack every hundredth of a CPU second, and prints where the CPU time went.

The third form is of programs of flex_attention on targets that are not there, forward alone; what
was refused is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import Executor, Shard, ShardReport, WorkerConfig
from attnfuzz.fuzz.pool.pool import InlinePool, Pool, run_all
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.fuzz.pool.tasks import ShardTask
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import stream

SHARD = 10
PRELOAD = Path(__file__).with_name("where_preload.py")
VIRTUAL = ("virtual-sm90", "virtual-sm86", "interpreted-sm90")


@dataclass(frozen=True)
class Rate:
    """One measurement: `programs` run, the CPU seconds of their processes and of the harness."""

    profile: str
    programs: int
    passed: int
    cpu_s: float
    harness_cpu_s: float
    wall_s: float

    @property
    def per_cpu_minute(self) -> float:
        return self.programs / (self.cpu_s + self.harness_cpu_s) * 60

    @property
    def harness_share(self) -> float:
        return self.harness_cpu_s / self.cpu_s


@dataclass(frozen=True)
class Where:
    """Where the CPU time of a profile's programs went: seconds by what they were spent on."""

    rate: Rate
    seconds: dict[str, float]


def shards(seed: int, profile: str, programs: int) -> list[Shard]:
    return [
        Shard(campaign_seed=seed, index=index, size=SHARD, profiles=((profile, 1.0),))
        for index in range(-(-programs // SHARD))
    ]


def measure(pool: Pool, work: Sequence[Shard]) -> Rate:
    began = time.monotonic()
    reports = [finished.result for finished in run_all(pool, [ShardTask(s) for s in work])]
    wall_s = time.monotonic() - began
    done = [report for report in reports if isinstance(report, ShardReport)]
    if len(done) < len(work):
        raise SystemExit(f"{len(work) - len(done)} shards did not come back; nothing is measured")
    return Rate(
        profile=work[0].profiles[0][0],
        programs=sum(report.executed for report in done),
        passed=sum(report.counts.get("passed", 0) for report in done),
        cpu_s=sum(report.cpu_s for report in done),
        harness_cpu_s=sum(report.harness_cpu_s for report in done),
        wall_s=wall_s,
    )


def profiled(config: WorkerConfig, seed: int, profile: str, programs: int) -> Where:
    """Programs of one profile with nothing beside them, and again with the profiler."""
    work = shards(seed, profile, programs)
    with contextlib.closing(InlinePool(config)) as pool:
        measure(pool, shards(seed + 1, profile, SHARD))  # the first programs are colder
        rate = measure(pool, work)
    folder = Path(config.scratch) / f"where-{profile}"
    folder.mkdir()
    preload = shutil.copy(PRELOAD, folder)
    with contextlib.closing(InlinePool(replace(config, preload=(str(preload),)))) as pool:
        measure(pool, shards(seed + 1, profile, SHARD))
        for file in folder.glob("cpu-*"):
            file.unlink()
        again = measure(pool, work)
    seconds: dict[str, float] = defaultdict(float)
    for file in sorted(folder.glob("cpu-*.json")):
        for name, spent in json.loads(file.read_text()).items():
            seconds[name] += spent
    seconds["started and ended"] = max(0.0, again.cpu_s - sum(seconds.values()))
    seconds["harness: drawing, rendering, watching, forking"] = again.harness_cpu_s
    return Where(rate, dict(seconds))


def tell_where(found: Where) -> None:
    tell([found.rate])
    whole = sum(found.seconds.values())
    for name, seconds in sorted(found.seconds.items(), key=lambda one: -one[1]):
        each = seconds / max(found.rate.programs, 1)
        print(f"    {seconds / whole:6.1%}  {each:6.2f} CPU s a program  {name}")


def measure_virtual(config: WorkerConfig, seed: int, count: int) -> list[Rate]:
    """Programs of flex_attention without gradients on each of the worker's targets."""
    rates = []
    with Executor(config) as executor:
        for target in config.targets:
            before = executor.harness_cpu_s()
            began = time.monotonic()
            outcomes = [
                executor.run_programs([program], RunSettings(target=target))[0]
                for program in islice(forward(seed, target), count)
            ]
            ran = [outcome for outcome in outcomes if outcome.status != "rejected"]
            rates.append(
                Rate(
                    profile=target,
                    programs=len(ran),
                    passed=sum(outcome.status == "passed" for outcome in ran),
                    cpu_s=sum(outcome.cost.cpu_s for outcome in ran),
                    harness_cpu_s=executor.harness_cpu_s() - before,
                    wall_s=time.monotonic() - began,
                )
            )
    return rates


def forward(seed: int, target: str) -> Iterator[Program]:
    """What a campaign draws of flex_attention for a target, without what has gradients."""
    place = TARGETS[target].place
    drawn = stream(seed, profile="inductor-flex", shard_size=SHARD, place=place)
    return (program for program in drawn if program.training is None)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--inductor", type=int, default=40, help="programs in Inductor mode")
    options.add_argument("--eager", type=int, default=400, help="programs in eager and aot_eager")
    options.add_argument("--where", type=int, default=0, help="programs of each profile")
    options.add_argument("--profiles", nargs="+", default=["inductor-sdpa", "inductor-flex"])
    options.add_argument("--virtual", type=int, default=0, help="programs on each virtual target")
    options.add_argument("--toolchain", default=sys.executable, help="a Python with triton")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    if chosen.where:
        print(f"{os.cpu_count()} cores, {platform.platform()}")
        with Scratch.create() as scratch:
            config = WorkerConfig(scratch=str(scratch.root))
            for profile in chosen.profiles:
                tell_where(profiled(config, chosen.seed, profile, chosen.where))
        return
    if chosen.virtual:
        with Scratch.create() as scratch:
            config = WorkerConfig(
                scratch=str(scratch.root), targets=VIRTUAL,
                toolchain=os.path.abspath(chosen.toolchain),
            )  # fmt: skip
            rates = measure_virtual(config, chosen.seed, chosen.virtual)
        print(f"{os.cpu_count()} cores, {platform.platform()}")
        tell(rates)
        return
    compiled = shards(chosen.seed, "inductor-sdpa", chosen.inductor)
    eager = shards(chosen.seed, "eager", chosen.eager)
    with Scratch.create() as scratch:
        config = WorkerConfig(scratch=str(scratch.root))
        one = InlinePool(config)
        environment = one.environment()
        rates = [measure(one, compiled), measure(one, eager)]
        one.close()
        walls = {}
        for workers in (1, 2):
            pool = RayPool(config, workers)
            measure(pool, shards(chosen.seed + 1, "eager", SHARD * workers))  # the first is colder
            walls[workers] = measure(pool, eager).wall_s
            pool.close()
    speedup = walls[1] / walls[2]
    if chosen.json:
        figures = [
            asdict(r) | {"per_cpu_minute": r.per_cpu_minute, "harness_share": r.harness_share}
            for r in rates
        ]
        print(json.dumps({"rates": figures, "speedup": speedup, "environment": environment}))
        return
    print(f"{environment['torch']}, {os.cpu_count()} cores, {platform.platform()}")
    tell(rates)
    print(f"2 workers against 1: {walls[1]:.1f} s / {walls[2]:.1f} s = {speedup:.2f} times")


def tell(rates: Sequence[Rate]) -> None:
    for rate in rates:
        print(
            f"{rate.profile:16} {rate.programs:5} programs ({rate.passed} passed): "
            f"{rate.per_cpu_minute:6.1f} per CPU-minute; harness {rate.harness_share:.1%} of the "
            f"{rate.cpu_s:.1f} CPU s that the programs used"
        )


if __name__ == "__main__":
    main()
