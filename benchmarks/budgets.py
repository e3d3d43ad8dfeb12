"""How near correct results come to their error budgets, and how small the budgets of blocks are.

    PYTHONPATH=. python benchmarks/budgets.py --seed 1 --programs 400 [--target cuda]
        [--profile mixed --profile graph] [--eager]

Programs of each profile in turn, on one worker. A table says, of the comparisons in programs that
passed, how large an error is at most, as a part of its budget: of the whole output, and of the
block of elements that it is in. What comes near 1 would soon be a false alarm; a budget that
nothing comes near could be smaller. `half` is the part of the comparisons in which some block's
budget is at most half of that of the whole. Programs that failed by a block's budget alone are
named: each is a finding, or a false alarm.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.targets.target import Target
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import Failure, Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import shard_programs

SHARD = 5
"""Programs of one swarm."""

PRELOAD = Path(__file__).with_name("budgets_preload.py")
PROFILES = ("mixed", "eager", "inductor-sdpa", "inductor-flex", "graph", "modules", "sdpa_forms")
LEVELS = (0.1, 0.2, 0.3, 0.5, 0.7)


def programs(seed: int, target: Target, profiles: Sequence[str]) -> Iterator[Program]:
    """Programs of `profiles` in turn, without end."""
    for index in count():
        profile = {profiles[index % len(profiles)]: 1.0}
        for program in shard_programs(seed, index, SHARD, profile, place=target.place):
            if target.unfit(program) is None:
                yield program


def compared(
    sandbox: Sandbox, target: Target, program: Program, noted: Path
) -> tuple[Outcome, list[dict[str, Any]]]:
    """How the program does, and what was noted of its comparisons."""
    noted.unlink(missing_ok=True)
    job = target.job(program, for_program(program), Deadlines())
    outcome = sandbox.run(target.source(program), job)
    lines = noted.read_text().splitlines() if noted.exists() else []
    return outcome, [json.loads(line) for line in lines]


def _by_blocks_alone(failure: Failure) -> bool:
    """Whether everything that is wrong is so by the budget of its block."""
    return bool(failure.diffs) and all(diff.block is not None for diff in failure.diffs)


def main(
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 1,
    number: Annotated[int, typer.Option("--programs", help="How many to run.")] = 200,
    profile: Annotated[list[str] | None, typer.Option(help="Some of the profiles.")] = None,
    target: Annotated[str, typer.Option(help="cpu, or a device.")] = "cpu",
    toolchain: Annotated[str, typer.Option(help="An interpreter with torch.")] = sys.executable,
    eager: Annotated[bool, typer.Option("--eager", help="Compile nothing.")] = False,
) -> None:
    place, folder = TARGETS[target], Path(tempfile.mkdtemp(prefix="attnfuzz-budgets-"))
    statuses: Counter[str] = Counter()
    found: list[dict[str, Any]] = []
    try:
        preload = Path(shutil.copy(PRELOAD, folder))
        noted = preload.with_name("budgets.jsonl")
        with Sandbox(
            toolchain, target=target, limits=place.limits, preload=[preload], scratch=folder
        ) as sandbox:
            for program in islice(programs(seed, place, profile or PROFILES), number):
                each = replace(program, compile=None) if eager else program
                outcome, comparisons = compared(sandbox, place, each, noted)
                statuses[outcome.status] += 1
                if outcome.status == "passed":
                    found += comparisons
                elif (failure := outcome.failure) and _by_blocks_alone(failure):
                    print(f"by a block's budget alone: {program_id(each)}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    told = ", ".join(f"{many} {status}" for status, many in sorted(statuses.items()))
    print(f"{number} programs, seed {seed}, {target}, {platform.machine()}: {told}")
    table = Table("of its budget", *(f"> {level}" for level in LEVELS), "largest")
    for name in ("whole", "block"):
        ratios = [one[name] for one in found]
        above = (str(sum(ratio > level for ratio in ratios)) for level in LEVELS)
        table.add_row(name, *above, f"{max(ratios, default=0):.2f}")
    Console().print(table)
    half = sum(one["small"] <= 0.5 for one in found)
    print(f"{len(found)} comparisons; a block's budget is half of the whole's or less in {half}")


if __name__ == "__main__":
    typer.run(main)
