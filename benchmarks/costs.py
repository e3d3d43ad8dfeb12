"""What programs cost, and how well that is predicted: makes the table that campaigns begin with.

    python benchmarks/costs.py --samples costs.jsonl [--seconds 500] [--seed 3]
    python benchmarks/costs.py --samples costs.jsonl --seconds 0 --write

Draws programs of every profile that needs nothing but torch, runs each once, and adds a line to
`--samples` for each: its traits and the CPU seconds it took. Called again it goes on with the next
shard. Then it fits a model to four fifths of all samples and says how far it is off for the last
fifth. `--write` writes actors/costs.yaml, from all of them.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from attnfuzz.actors.cost import TABLE, CostModel, budget, fitted, traits
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.fuzz.pool.tasks import Finished, RunTask
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import shard_programs
from benchmarks.reach_run import usual_profiles

SHARD = 4
HELD_OUT = 5
"""Of how many samples one is predicted by a model of the others."""

Sample = dict[str, Any]


def drawn(seed: int, first: int) -> Iterator[tuple[int, str, Program]]:
    """Programs without end, each with the shard and the profile it is of; profiles in turn."""
    profiles = usual_profiles(["cpu"])
    index = first
    while True:
        profile = profiles[index % len(profiles)]
        for program in shard_programs(seed, index, SHARD, {profile: 1.0}):
            yield index, profile, program
        index += 1


def measure(samples: Path, seed: int, first: int, seconds: float, workers: int) -> None:
    """Runs programs for `seconds` and writes down what each took."""
    source = drawn(seed, first)
    began = time.monotonic()
    running: dict[int, tuple[int, str, Program]] = {}
    with Scratch.create() as scratch, samples.open("a") as file:
        pool = RayPool(WorkerConfig(scratch=str(scratch.root)), workers)
        try:
            while running or time.monotonic() - began < seconds:
                while pool.free and time.monotonic() - began < seconds:
                    one = next(source)
                    running[pool.submit(RunTask((one[2],)))] = one
                for finished in pool.wait(1.0):
                    file.write(json.dumps(sample(finished, *running.pop(finished.handle))) + "\n")
                    file.flush()
                if time.monotonic() - began > seconds + 60:
                    break  # what still runs is an outlier, and left out
        finally:
            pool.close()


def sample(finished: Finished, shard: int, profile: str, program: Program) -> Sample:
    if not isinstance(finished.result, list):
        raise SystemExit(f"a program did not come back: {finished.result}")
    (outcome,) = finished.result
    assert isinstance(outcome, Outcome)
    return {
        "shard": shard,
        "profile": profile,
        "status": outcome.failure.kind.value if outcome.failure else outcome.status,
        "cpu_s": outcome.cost.cpu_s,
        "traits": traits(program),
    }


def ratios(model: CostModel, some: Sequence[Sample]) -> list[float]:
    """How many times as long as predicted each took, sorted."""
    return sorted(one["cpu_s"] / model.predict_traits(one["traits"]) for one in some)


def quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def main(
    samples: Annotated[Path, typer.Option(help="JSON lines, added to.")],
    seconds: Annotated[float, typer.Option(help="How long programs are run.")] = 500,
    seed: Annotated[int, typer.Option(help="Of the programs.")] = 3,
    workers: Annotated[int, typer.Option(help="Workers, one CPU each.")] = 2,
    write: Annotated[bool, typer.Option("--write", help="Write actors/costs.yaml.")] = False,
) -> None:
    console = Console(width=110)
    there = _read(samples)
    if seconds > 0:
        first = max((one["shard"] for one in there), default=-1) + 1
        measure(samples, seed, first, seconds, workers)
        there = _read(samples)
    ran = [one for one in there if one["cpu_s"] > 0]
    if len(ran) < HELD_OUT:
        raise SystemExit(f"{samples}: expected {HELD_OUT} samples or more, got {len(ran)}")
    kept = [one for place, one in enumerate(ran) if place % HELD_OUT]
    model = fitted((one["traits"], one["cpu_s"]) for one in kept)
    console.print(f"{len(ran)} programs, {os.cpu_count()} cores, {platform.platform()}")
    table = Table("profile", "programs", "median CPU s", "most", title="measured")
    for profile in sorted({one["profile"] for one in ran}):
        its = sorted(one["cpu_s"] for one in ran if one["profile"] == profile)
        table.add_row(profile, str(len(its)), f"{median(its):.2f}", f"{its[-1]:.1f}")
    console.print(table)
    _tell(console, "the samples it was fitted to", model, kept)
    _tell(console, "samples it had not seen", model, ran[::HELD_OUT])
    if write:
        whole = fitted((one["traits"], one["cpu_s"]) for one in ran)
        _write(whole, len(ran))
        console.print(f"{TABLE} written, of {len(ran)} programs")


def _tell(console: Console, what: str, model: CostModel, some: Sequence[Sample]) -> None:
    off = ratios(model, some)
    mean_off = math.exp(sum(abs(math.log(one)) for one in off) / len(off))
    console.print(
        f"{what}: {len(some)}, off by a factor of {mean_off:.2f} in the geometric mean; "
        f"{quantile(off, 0.05):.2f}, {quantile(off, 0.5):.2f}, {quantile(off, 0.95):.2f}, "
        f"{off[-1]:.1f} times as long as predicted (5%, median, 95%, most)"
    )
    over = [one for one in some if one["cpu_s"] > budget(model.predict_traits(one["traits"]))]
    for one in over:
        predicted = model.predict_traits(one["traits"])
        console.print(
            f"  outlier: {one['cpu_s']:.0f} CPU s, predicted {predicted:.1f} ({one['status']})"
        )


def _read(samples: Path) -> list[Sample]:
    if not samples.exists():
        return []
    return [json.loads(line) for line in samples.read_text().splitlines()]


def _write(model: CostModel, count: int) -> None:
    head = (
        f"# What traits of a program cost, as logarithms of CPU seconds: see cost.py. Made by\n"
        f"# benchmarks/costs.py from {count} programs on {platform.machine()}, "
        f"{os.cpu_count()} cores. Not for editing.\n"
    )
    weights = {name: round(weight, 3) for name, weight in sorted(model.weights.items())}
    TABLE.write_text(head + yaml.safe_dump({"weights": weights}, sort_keys=True, width=100))


if __name__ == "__main__":
    typer.run(main)
