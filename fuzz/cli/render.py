"""`render`: the source that a program means. Needs no torch."""

from __future__ import annotations

import sys

import typer

from attnfuzz.fuzz.cli.common import Json, ProgramFile, emit, read_program


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(render)


def render(program: ProgramFile, as_json: Json = False) -> None:
    """Print the source of a program.

    The module that the sandbox runs, which needs torch and nothing of ours. It defines `inputs`,
    `attention`, `reference`, `run` and, where it is compiled, `compiled`, and calls none of them.

    `attnfuzz render program.yaml > attention.py`
    """
    from attnfuzz.generators.model.codec import program_id
    from attnfuzz.generators.render.module import source

    loaded = read_program(program)
    if as_json:
        emit({"id": program_id(loaded), "source": source(loaded)})
    else:
        sys.stdout.write(source(loaded))
