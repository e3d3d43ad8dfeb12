"""`run` and `minimize`: one program in a sandbox, and the smallest that still fails like it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnfuzz.actors.targets.registry import TARGETS
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
    console,
    emit,
    interpreter,
    note,
    python_files,
    read_program,
)
from attnfuzz.fuzz.errors import EXIT_CHANGED, UserError, user_path

if TYPE_CHECKING:
    from attnfuzz.fuzz.campaign.pool import Pool
    from attnfuzz.fuzz.reduce.minimize import Minimize
    from attnfuzz.generators.model.outcome import Failure, Outcome
    from attnfuzz.generators.model.program import Program

CONFIRM_RUNS = 5
MAX_CANDIDATES = 1000
TELL_EVERY_S = 10.0


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(run)
    app.command()(minimize)


def run(
    program: ProgramFile,
    preload: Preload = None,
    allow_function: AllowFunction = None,
    toolchain: Toolchain = None,
    target: Target = "cpu",
    as_json: Json = False,
) -> None:
    """Run one program in a sandbox, and tell what became of it.

    Tells the outcome, the layer to blame, the evidence, and what it cost; on a virtual card also
    the kernels that were compiled for it, and what each takes.

    `attnfuzz run program.yaml --toolchain /opt/torch-2.12/bin/python`
    `attnfuzz run program.yaml --target virtual-sm86`

    Exit codes: 0 when it passed or was refused by design, 1 when it failed, 2 when the program, a
    preload file or the toolchain cannot be used.
    """
    loaded = read_program(program)
    check_function(loaded, allow_function, program)
    files, python = python_files(preload), interpreter(toolchain)
    check_target(target, loaded, program, bool(files))

    from attnfuzz.fuzz.cli.pool import outcomes, pool
    from attnfuzz.fuzz.report.outcome import outcome_json, outcome_text

    with pool(python, files, target=target) as one:
        (outcome,) = outcomes(one, [loaded], where=lambda _: program)
        environment = one.environment()
    if as_json:
        emit(outcome_json(loaded, outcome) | {"environment": environment})
    else:
        console().print(outcome_text(loaded, outcome, target))
    raise typer.Exit(EXIT_CHANGED if outcome.status == "failed" else 0)


def minimize(
    program: ProgramFile,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write the program. Default: stdout.")
    ] = None,
    repro: Annotated[
        Path | None, typer.Option("--repro", help="Where to write its standalone script.")
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
    target: Target = "cpu",
    as_json: Json = False,
) -> None:
    """Shrink a failing program as long as it fails alike.

    Alike is: the same kind, exception and place, or the same output wrong. The result is 1-minimal
    (no single simplification of it still fails alike) unless the budget ended first, which is said.

    `attnfuzz minimize program.yaml --out small.yaml --repro repro.py`
    `attnfuzz minimize program.yaml --target virtual-sm86`

    Exit codes: 0 when it was minimized, 2 when the program does not fail or cannot be used.
    """
    loaded = read_program(program)
    check_function(loaded, allow_function, program)
    files, python = python_files(preload), interpreter(toolchain)
    check_target(target, loaded, program, bool(files))

    from attnfuzz.fuzz.campaign.keep import script_for
    from attnfuzz.fuzz.cli.pool import drive, pool
    from attnfuzz.generators.model.codec import dump_program

    with pool(python, files, workers or len(os.sched_getaffinity(0)), target) as many:
        stage = _search(many, loaded, program)
        for path in (out, repro):
            if path is not None:
                with user_path(path):
                    path.open("a").close()  # better now than after minutes of work
        search, said = stage.search, time.monotonic()
        until = said + seconds

        def told() -> None:
            nonlocal said
            now = time.monotonic()
            if stage.progress or now - said > TELL_EVERY_S:
                stage.progress, said = False, now
                note(f"{search.evaluated} candidates, {search.steps} accepted")

        drive(many, stage, told, stop=lambda: time.monotonic() > until)
    failure = search.outcome.failure
    assert failure is not None
    text, source = (
        dump_program(search.best),
        script_for(search.best, failure, TARGETS[target]),
    )
    for path, content in ((out, text), (repro, source)):
        if path is not None:
            with user_path(path):
                path.write_text(content, encoding="utf-8")
    if as_json:
        emit(_minimized_json(stage, source))
    elif out is None:
        typer.echo(text, nl=False)
    minimal = "1-minimal" if search.minimal else "the budget ended; the smallest so far"
    note(f"{search.evaluated} candidates, {search.steps} accepted: {minimal}")


def _search(many: Pool, program: Program, where: str) -> Minimize:
    """The search from `program`, after it was seen to fail; as patient as it is unreliable."""
    from attnfuzz.fuzz.cli.pool import drive, outcomes
    from attnfuzz.fuzz.reduce.confirm import Confirm, attempts_for
    from attnfuzz.fuzz.reduce.minimize import Minimize, Minimizer, fails_alike
    from attnfuzz.generators.model.outcome import FailureKind

    first = _first_failure(outcomes(many, [program], where=lambda _: where))
    if first is None:
        again = [program] * (CONFIRM_RUNS - 1)
        first = _first_failure(outcomes(many, again, where=lambda _: where))
    if first is None:
        never = f"but it never did in {CONFIRM_RUNS} runs"
        raise UserError(f"{where}: expected a program that fails, {never}")
    assert first.failure is not None
    judge = fails_alike(_key(first.failure, program), kind=first.failure.kind)
    hangs = first.failure.kind is FailureKind.HANG
    confirm = Confirm(program, judge, CONFIRM_RUNS, hangs=hangs)
    drive(many, confirm)
    note(f"fails in {confirm.failed} of {confirm.runs} runs: {first.failure.kind.value}")
    search = Minimizer(program, first, judge, max_candidates=MAX_CANDIDATES)
    return Minimize(search, attempts=attempts_for(confirm.failed, confirm.runs))


def _first_failure(seen: list[Outcome]) -> Outcome | None:
    return next((outcome for outcome in seen if outcome.failure is not None), None)


def _key(failure: Failure, program: Program) -> str:
    from attnfuzz.corpus.signature import signature

    return signature(failure, program).strong


def _minimized_json(stage: Minimize, source: str) -> dict[str, Any]:
    from attnfuzz.fuzz.report.outcome import outcome_json
    from attnfuzz.generators.model.codec import to_data

    search = stage.search
    return outcome_json(search.best, search.outcome) | {
        "program": to_data(search.best),
        "repro": source,
        "minimal": search.minimal,
        "candidates": search.evaluated,
        "accepted": search.steps,
    }
