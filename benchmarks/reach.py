"""Which lines of torch's own attention code do drawn programs reach, and which fusion patterns?

    PYTHONPATH=. python benchmarks/reach.py run --programs 150 [--seed 1] [--html DIR] [--json FILE]
    PYTHONPATH=. python benchmarks/reach.py compare BEFORE.json AFTER.json

Counted are statements in bodies of functions of `reach_lines.ATTENTION`, for programs that passed.
A line is reached if it was executed, or if dynamo interpreted it while it traced: what is compiled
calls the attention functions only there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.fuzz import errors
from attnfuzz.fuzz.errors import UserError, user_path
from attnfuzz.generators.strategies.swarm import PROFILES
from benchmarks.reach_lines import FUSION, Report, attention_files, replacements
from benchmarks.reach_run import Found, Measurement, Plan, torch_of, usual_profiles
from benchmarks.reach_tables import (
    FileReach,
    PatternReach,
    Reach,
    comparison,
    file_tables,
    left_table,
    pattern_table,
    read,
    summary,
    write,
)

PROGRAMS = 150
app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)


@app.command()
def run(
    seed: Annotated[int, typer.Option(help="What the programs follow from.")] = 1,
    programs: Annotated[
        int | None,
        typer.Option(min=1, help=f"How many; {PROGRAMS} unless --minutes says how long."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="For how long at most.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Where; the CPU by default.")] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(help="Of what kind, twice for twice as many; all that need torch alone."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="How many at a time.")] = 1,
    toolchain: Annotated[str, typer.Option(help="A Python with torch and coverage.")] = (
        sys.executable
    ),
    every: Annotated[bool, typer.Option("--all", help="Failing programs count too.")] = False,
    html: Annotated[Path | None, typer.Option(help="A folder for coverage.py's pages.")] = None,
    json: Annotated[Path | None, typer.Option(help="A file for `compare`.")] = None,
) -> None:
    """Run programs, and say which lines and patterns they reached."""
    targets = _known(target or [DEFAULT], "target", [*TARGETS])
    profiles = _known(profile or usual_profiles(targets), "profile", [*PROFILES])
    plan = Plan(
        seed=seed, programs=programs or (PROGRAMS if minutes is None else None),
        seconds=None if minutes is None else minutes * 60, targets=targets, profiles=profiles,
        workers=workers, toolchain=toolchain, failing=every,
    )  # fmt: skip
    torch, version = torch_of(toolchain)
    files = attention_files(torch)
    with TemporaryDirectory() as folder:
        found = _measured(plan, files)
        report = Report(files, _by_name(files, found.executed, found.traced), Path(folder))
        if html is not None:
            with user_path(html):
                report.write_html(html)
        reach = _reach(plan, version, files, found, report)
    if json is not None:
        write(reach, json)
    console = Console(width=120)
    for table in (*file_tables(reach), left_table(reach), pattern_table(reach)):
        if table is not None:
            console.print(table)
    console.print(summary(reach))


@app.command()
def compare(before: Path, after: Path) -> None:
    """Show what two measurements differ in."""
    console = Console(width=120)
    was, now = read(before), read(after)
    for table in comparison(was, now):
        console.print(table)
    console.print(f"before: {summary(was)}\nafter: {summary(now)}")


def _known(names: list[str], option: str, known: list[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise UserError(f"--{option}: expected one of {', '.join(known)}, got {name}")
    return names


def _measured(plan: Plan, files: dict[str, Path]) -> Found:
    columns = (MofNCompleteColumn(), "programs", TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=plan.programs)
        return Measurement(plan, files).run(lambda: progress.advance(task))


def _by_name(files: dict[str, Path], *found: dict[str, set[int]]) -> dict[str, set[int]]:
    """Lines by the name of the file, of all of `found` together."""
    return {
        name: set().union(*(lines.get(str(path), ()) for lines in found))
        for name, path in files.items()
    }


def _reach(plan: Plan, version: str, files: dict[str, Path], found: Found, report: Report) -> Reach:
    with TemporaryDirectory() as folder:
        executed_only = Report(files, _by_name(files, found.executed), Path(folder))
        executed = {name: set(executed_only.statements(name)[1]) for name in files}
    both = {name: report.statements(name) for name in files}
    patterns = {
        name: PatternReach(
            programs=found.patterns[name],
            registered={
                as_: number
                for as_, number in sorted(found.fired.items())
                if as_.startswith(f"{name}_")
            },
        )
        for name in replacements(files[FUSION].read_text())
    }
    return Reach(
        torch=version, seed=plan.seed, targets=[*plan.targets], profiles=[*plan.profiles],
        statuses=dict(sorted(found.statuses.items())), counted=found.counted, patterns=patterns,
        files={
            name: FileReach(
                lines=lines, reached=reached, traced=sorted(set(reached) - executed[name])
            )
            for name, (lines, reached) in both.items()
        },
    )  # fmt: skip


if __name__ == "__main__":
    try:
        app()
    except Exception as error:
        said = errors.sentence(error)
        if said is None:
            raise
        print(said, file=sys.stderr)
        sys.exit(errors.EXIT_BAD_INPUT)
