"""`adopt`: what a campaign has found, into a corpus."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from attnfuzz.fuzz.cli.common import Json, emit
from attnfuzz.fuzz.errors import user_path
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.escape import say


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(adopt)


def adopt(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A campaign's directory, or another corpus.")
    ],
    corpus: Annotated[
        Path,
        typer.Option("--into", metavar="CORPUS", help="The corpus; made where it is missing."),
    ],
    most: Annotated[
        int, typer.Option("--max-cases", min=1, max=1000, help="Cases kept of a bucket.")
    ] = 3,
    as_json: Json = False,
) -> None:
    """Take a campaign's buckets and cases into a corpus, the memory between nights.

    A bucket that the corpus has already gets the cases that it lacks, up to the limit; nothing in
    it is written over. Its history says which campaign met it, with which torch. A campaign with
    `corpus: [CORPUS]` in its configuration knows what is in there. The command may be killed and
    repeated at any time.

    `attnfuzz adopt campaigns/night --into found`
    """
    from attnfuzz.fuzz.adopt import adopt as take

    with user_path(corpus):
        done = take(directory, corpus, most, date.today())
    if as_json:
        emit(vars(done) | {"directory": str(directory), "into": str(corpus)})
        return
    say(f"new in {corpus}: {', '.join(done.new) or 'nothing'}")
    if done.known:
        say(f"known: {', '.join(sorted(set(done.known)))}")
    rest = f"; {done.left_out} left out, their buckets have {most}" if done.left_out else ""
    say(f"{counted(done.cases, 'case')} added{rest}")
    for name, why in done.came_back.items():
        say(f"came back: {name} ({why})")
