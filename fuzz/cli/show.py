"""`show`: everything about one bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnfuzz.fuzz.cli.common import Json, console, emit, newest_campaign
from attnfuzz.fuzz.report.escape import say
from attnfuzz.fuzz.shipped import find


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(show)


def show(
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="Its id, or how the id begins.")],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="A campaign's directory, or a corpus. Default: the newest."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print it as the text of an issue.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell everything about a bucket.

    What fails and how, what triggers it, the minimized program, its script, the evidence, what its
    variants do, and which other buckets may be the same.

    `attnfuzz show 3f9a --dir campaigns/night --markdown > issue.md`
    """
    from attnfuzz.fuzz.report.bucket import page_json, page_markdown, page_text
    from attnfuzz.fuzz.report.pages import page

    found = page(find(directory) if directory else newest_campaign(), bucket)
    if as_json:
        emit(page_json(found))
    elif markdown:
        say(page_markdown(found), end="")
    else:
        console().print(page_text(found))
