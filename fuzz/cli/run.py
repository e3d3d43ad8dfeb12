"""`run`: one program in a sandbox."""

from __future__ import annotations

import typer

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.fuzz.cli.common import (
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
    python_files,
    read_program,
)
from attnfuzz.fuzz.errors import EXIT_CHANGED


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(run)


def run(
    program: ProgramFile,
    preload: Preload = None,
    allow_function: AllowFunction = None,
    toolchain: Toolchain = None,
    target: Target = DEFAULT,
    as_json: Json = False,
) -> None:
    """Run one program in a sandbox, and report what became of it.

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

    from attnfuzz.fuzz.pool.opened import outcomes, pool
    from attnfuzz.fuzz.report.outcome import outcome_json, outcome_text

    with pool(python, files, target=target) as one:
        (outcome,) = outcomes(one, [loaded], where=lambda _: program)
        environment = one.environment()
    if as_json:
        emit(outcome_json(loaded, outcome) | {"environment": environment})
    else:
        console().print(outcome_text(loaded, outcome, target))
    raise typer.Exit(EXIT_CHANGED if outcome.status == "failed" else 0)
