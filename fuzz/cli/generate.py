"""`generate`: random programs. Needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnfuzz.fuzz.cli.common import Json, emit
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.reading.complaints import mismatch

if TYPE_CHECKING:
    from attnfuzz.generators.model.program import Program
    from attnfuzz.generators.strategies.swarm import UserFunction


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(generate)


def generate(
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same programs.")] = 0,
    count: Annotated[int, typer.Option(min=0, help="How many programs.")] = 1,
    profile: Annotated[
        str, typer.Option(help="The mixture to draw from; a configuration's profiles name them.")
    ] = "mixed",
    function: Annotated[
        str | None,
        typer.Option(
            "--function",
            metavar="MODULE:NAME",
            help="The attention function that programs of profile function call, as "
            "`functions` in a configuration, which can say more of it.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="A campaign, for the programs of one of its shards."),
    ] = None,
    shard: Annotated[int | None, typer.Option(min=0, help="The number of that shard.")] = None,
    as_json: Json = False,
) -> None:
    """Print random programs.

    YAML documents, or with `--json` one JSON object a line. The bytes depend on the arguments and
    on the versions of attnfuzz and Hypothesis, on nothing else; a smaller count gives the beginning
    of a larger one. Each line of JSON is a program file of its own (JSON is YAML):

    `attnfuzz generate --seed 7 --json | attnfuzz run -`
    `attnfuzz generate --dir campaigns/night --shard 500000003`

    The second form prints what a shard of a campaign drew, of mutants too, before it was steered
    clear of what was known.
    """
    from attnfuzz.generators.model.codec import dump_program, to_data
    from attnfuzz.generators.strategies.shards import stream
    from attnfuzz.generators.strategies.swarm import PROFILES

    if profile not in PROFILES:
        allowed = f"one of {', '.join(sorted(PROFILES))}"
        raise UserError(mismatch("--profile", allowed, repr(profile)))
    if (profile == "function") != (function is not None):
        raise UserError("--profile function and --function MODULE:NAME go together")
    if (directory is None) != (shard is None):
        raise UserError("--dir DIR and --shard NUMBER go together")
    programs: Iterable[Program]
    if directory is not None and shard is not None:
        programs = _of_campaign(directory, shard)
    else:
        programs = islice(stream(seed, profile=profile, functions=_functions(function)), count)
    for position, program in enumerate(programs):
        if as_json:
            emit(to_data(program))
        else:
            sys.stdout.write(("---\n" if position else "") + dump_program(program))


def _of_campaign(directory: Path, shard: int) -> list[Program]:
    from attnfuzz.corpus.store.store import Store
    from attnfuzz.fuzz.campaign.shards import drawn_again

    with Store(directory, create=False) as store:
        return drawn_again(store, shard)


def _functions(target: str | None) -> tuple[UserFunction, ...]:
    from pydantic import TypeAdapter, ValidationError

    from attnfuzz.generators.strategies.swarm import UserFunction

    if target is None:
        return ()
    try:
        return (TypeAdapter(UserFunction).validate_python({"target": target}),)
    except ValidationError:
        raise UserError(mismatch("--function", "MODULE:NAME", repr(target))) from None
