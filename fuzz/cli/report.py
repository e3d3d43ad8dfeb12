"""`report`: a campaign or a corpus as one file."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from attnfuzz.fuzz.cli.common import Json, emit
from attnfuzz.fuzz.report.escape import say
from attnfuzz.fuzz.shipped import find


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(report)


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A campaign's directory, or a corpus of cases.")
    ],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="Where to write it.")],
    buckets: Annotated[
        int, typer.Option(min=0, help="How many buckets have a section of their own, the worst.")
    ] = 200,
    as_json: Json = False,
) -> None:
    """Write what a campaign found as one HTML file.

    The same as the dashboard shows: the campaign as a whole, the list of buckets, and everything
    about each. The file needs nothing else and loads nothing, so that it can be mailed, or kept
    with what a build made. A campaign can be reported on while it runs.

    `attnfuzz report campaigns/night --html night.html`
    """
    from attnfuzz.fuzz.dashboard.html_report import write_report
    from attnfuzz.fuzz.dashboard.sources import sources
    from attnfuzz.fuzz.errors import user_path

    (source,) = sources([find(directory)])
    with contextlib.closing(source), user_path(html):
        write_report(source, html, buckets)
    if as_json:
        emit({"html": str(html)})
    else:
        say(f"open {html}")
