"""`minimize`: the smallest program that still fails like a given one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.fuzz.cli.common import (
    MAX_WORKERS,
    AllowFunction,
    Json,
    Preload,
    ProgramFile,
    Target,
    Toolchain,
    check_function,
    check_target,
    emit,
    interpreter,
    note,
    python_files,
    read_program,
)
from attnfuzz.fuzz.errors import UserError, user_path
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.generators.reading.complaints import mismatch

if TYPE_CHECKING:
    from attnfuzz.fuzz.pool.pool import Pool
    from attnfuzz.fuzz.reduce.finding import Finding
    from attnfuzz.fuzz.reduce.minimize import Minimize
    from attnfuzz.fuzz.reduce.search import Minimizer
    from attnfuzz.generators.model.outcome import Outcome
    from attnfuzz.generators.model.program import Program

CONFIRM_RUNS = 5
MAX_CANDIDATES = 1000
CASES = 3  # kept of a bucket, as `adopt` does
REPORT_EVERY_S = 10.0


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(minimize)


def minimize(
    program: ProgramFile,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write the program. Default: stdout.")
    ] = None,
    repro: Annotated[
        Path | None, typer.Option("--repro", help="Where to write its standalone script.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="CORPUS", help="A corpus to keep it in, as a case."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="Budget; the smallest program so far is kept.")
    ] = 600,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_WORKERS, help="Sandboxes at work. Default: one a core."),
    ] = None,
    preload: Preload = None,
    allow_function: AllowFunction = None,
    toolchain: Toolchain = None,
    target: Target = DEFAULT,
    as_json: Json = False,
) -> None:
    """Shrink a failing program as long as it fails alike.

    Alike is: the same kind, exception and place, or the same output wrong. The result is 1-minimal
    (no single simplification of it still fails alike) unless the budget ended first, which is said.

    `attnfuzz minimize program.yaml --out small.yaml --repro repro.py`
    `attnfuzz minimize program.yaml --target virtual-sm86`
    `attnfuzz minimize program.yaml --into found`

    Exit codes: 0 when it was minimized, 2 when the program does not fail or cannot be used.
    """
    loaded = read_program(program)
    check_function(loaded, allow_function, program)
    files, python = python_files(preload), interpreter(toolchain)
    check_target(target, loaded, program, bool(files))

    from attnfuzz.actors.targets.registry import TARGETS
    from attnfuzz.fuzz.campaign.config import CampaignConfig
    from attnfuzz.fuzz.campaign.known_buckets import load_known
    from attnfuzz.fuzz.campaign.save_case import script_for
    from attnfuzz.fuzz.kept_program import keep
    from attnfuzz.fuzz.pool.opened import pool
    from attnfuzz.fuzz.reduce.one_program import confirm
    from attnfuzz.fuzz.reduce.one_program import minimize as search
    from attnfuzz.generators.model.codec import dump_program

    with pool(python, files, workers or len(os.sched_getaffinity(0)), target) as many:
        first = _first_failure(many, loaded, program)
        known = load_known(CampaignConfig(preload=list(files)))
        finding = confirm(many, loaded, first, target, CONFIRM_RUNS)
        kind = finding.failure.kind.value
        note(f"fails in {finding.failed} of {finding.runs} runs: {kind}")
        for path in (out, repro):
            if path is not None:
                with user_path(path):
                    path.open("a").close()  # better now than after minutes of work
        until = time.monotonic() + seconds
        stage = search(
            many,
            finding,
            max_candidates=MAX_CANDIDATES,
            buckets=known.explaining(known.buckets, target),
            on_answer=_Progress(),
            stop=lambda: time.monotonic() > until,
        )
        environment = many.environment()
    text = dump_program(finding.best)
    source = script_for(finding.best, finding.failure, TARGETS[target])
    for path, content in ((out, text), (repro, source)):
        if path is not None:
            with user_path(path):
                path.write_text(content, encoding="utf-8")
    if into is not None:
        with user_path(into):
            kept = keep(
                finding, source, into,
                most=CASES, python=python, environment=environment, preload=files,
            )  # fmt: skip
        buckets = ", ".join(kept.new + kept.known)
        note(f"bucket {buckets} of {into}: {counted(kept.cases, 'case')} added")
    if as_json:
        emit(_minimized_json(finding, stage.search, source))
    elif out is None and into is None:
        typer.echo(text, nl=False)
    minimal = "1-minimal" if stage.search.minimal else "the budget ended; the smallest so far"
    note(f"{stage.search.evaluated} candidates, {stage.search.steps} accepted: {minimal}")


class _Progress:
    """Reports how far the search is, at each step and every `REPORT_EVERY_S` seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, stage: Minimize) -> None:
        now = time.monotonic()
        if stage.progress or now - self._last > REPORT_EVERY_S:
            stage.progress, self._last = False, now
            note(f"{stage.search.evaluated} candidates, {stage.search.steps} accepted")


def _first_failure(many: Pool, program: Program, where: str) -> Outcome:
    """What `program`, read from `where`, fails with; UserError where it does not."""
    from attnfuzz.fuzz.pool.opened import outcomes

    for times in (1, CONFIRM_RUNS - 1):
        for outcome in outcomes(many, [program] * times, where=lambda _: where):
            if outcome.failure is not None:
                return outcome
    expected = mismatch(where, "a program that fails")
    raise UserError(f"{expected}, but it never did in {CONFIRM_RUNS} runs")


def _minimized_json(finding: Finding, search: Minimizer, source: str) -> dict[str, Any]:
    from attnfuzz.fuzz.report.outcome import outcome_json
    from attnfuzz.generators.model.codec import to_data

    return outcome_json(finding.best, finding.best_outcome) | {
        "program": to_data(finding.best),
        "repro": source,
        "minimal": search.minimal,
        "candidates": search.evaluated,
        "accepted": search.steps,
    }
