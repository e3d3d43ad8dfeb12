"""`generate` and `render`: programs, and the text that each one means. Neither needs a torch."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Annotated

import typer

from fuzz.cli_common import Json, ProgramFile, emit, read_program
from fuzz.errors import UserError


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(generate)
    app.command()(render)


def generate(
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same programs.")] = 0,
    count: Annotated[int, typer.Option(min=0, help="How many programs.")] = 1,
    profile: Annotated[
        str, typer.Option(help="The mixture to draw from; a configuration's profiles name them.")
    ] = "mixed",
    as_json: Json = False,
) -> None:
    """Print random programs.

    YAML documents, or with `--json` one JSON object a line. The bytes depend on the arguments and
    on the versions of attnfuzz and Hypothesis, on nothing else; a smaller count gives the beginning
    of a larger one. Each line of JSON is a program file of its own (JSON is YAML):

    `attnfuzz generate --seed 7 --json | attnfuzz run -`
    """
    from generators.codec import dump_program, to_data
    from generators.shards import stream
    from generators.swarm import PROFILES

    if profile == "function" or profile not in PROFILES:
        names = ", ".join(sorted(PROFILES.keys() - {"function"}))
        raise UserError(f"--profile: expected one of {names}, got {profile!r}")
    for position, program in enumerate(islice(stream(seed, profile=profile), count)):
        if as_json:
            emit(to_data(program))
        else:
            sys.stdout.write(("---\n" if position else "") + dump_program(program))


def render(program: ProgramFile, as_json: Json = False) -> None:
    """Print the source of a program.

    The module that the sandbox runs, which needs torch and nothing of ours. It defines `inputs`,
    `attention`, `reference`, `run` and, where it is compiled, `compiled`, and calls none of them.

    `attnfuzz render program.yaml > attention.py`
    """
    from generators.codec import program_id
    from generators.render import source

    loaded = read_program(program)
    if as_json:
        emit({"id": program_id(loaded), "source": source(loaded)})
    else:
        sys.stdout.write(source(loaded))
