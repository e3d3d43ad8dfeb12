"""Random programs whose generated GPU kernels are interpreted: do their numbers agree?

    PYTHONPATH=. python benchmarks/interpreted.py --toolchain PYTHON [--kernel flex] [--count 500]

Prints how many passed, were refused and failed, each failure's key with a program that has it
(written to `--dir`), and programs per CPU-minute of those that were run, forward alone and with
backward. One worker, one CPU.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.corpus.known_issues import match
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.model.codec import dump_program, program_id
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.strategies.shards import stream

SHARD = 10
TOLD = 50
"""Programs after which it is told how many passed so far."""

TARGET = "interpreted-sm90"


def main(
    toolchain: Annotated[Path, typer.Option(help="A Python with torch and triton.")],
    kernel: Annotated[str, typer.Option(help="flex or handwritten.")] = "flex",
    count: Annotated[int, typer.Option(help="Programs.")] = 500,
    seed: Annotated[int, typer.Option(help="Of the programs.")] = 1,
    directory: Annotated[Path, typer.Option("--dir")] = Path("campaigns/interpreted"),
) -> None:
    console = Console(width=120, highlight=False)
    directory.mkdir(parents=True, exist_ok=True)
    statuses: Counter[str] = Counter()
    failures: dict[str, tuple[str, list[str]]] = {}
    spent: dict[bool, list[float]] = {False: [], True: []}
    with Scratch.create() as scratch:
        config = WorkerConfig(
            scratch=str(scratch.root), toolchain=str(toolchain.absolute()), targets=(TARGET,)
        )
        with Executor(config) as executor:
            place = TARGETS[TARGET].place
            drawn = stream(seed, profile=f"inductor-{kernel}", shard_size=SHARD, place=place)
            for done, program in enumerate(islice(drawn, count)):
                if done and done % TOLD == 0:
                    console.print(f"{done} programs: {dict(sorted(statuses.items()))}")
                (outcome,) = executor.run_programs([program])
                statuses[said(outcome)] += 1
                if outcome.status == "passed":
                    spent[program.training is not None].append(outcome.cost.cpu_s)
                if outcome.failure is not None:
                    named = signature(outcome.failure, program)
                    issue = match(outcome.failure, program, executor.environment)
                    known = f" (known: {issue.id})" if issue else ""
                    name = program_id(program)
                    (directory / f"{name}.yaml").write_text(dump_program(program))
                    failures.setdefault(named.strong, (named.title + known, []))[1].append(name)
                    console.print(f"{name}  {named.strong}  {named.title}{known}")
    for status, number in sorted(statuses.items()):
        console.print(f"{number:5}  {status}")
    for key, (title, names) in sorted(failures.items()):
        console.print(f"{len(names):5}  {key}  {title}: {' '.join(names[:4])}")
    for trains, seconds in spent.items():
        if seconds:
            rate = 60 * len(seconds) / sum(seconds)
            what = "with backward" if trains else "forward alone"
            console.print(f"{what}: {len(seconds)} passed, {rate:.1f} per CPU-minute")


def said(outcome: Outcome) -> str:
    """Its status, with the reason of a refusal."""
    return f"rejected: {outcome.rejection}" if outcome.rejection else outcome.status


if __name__ == "__main__":
    typer.run(main)
