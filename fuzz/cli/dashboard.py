"""`dashboard`: campaigns and corpora as pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from attnfuzz.fuzz.cli.common import Json, emit, newest_campaign
from attnfuzz.fuzz.errors import UserError, os_sentence
from attnfuzz.fuzz.report.escape import say
from attnfuzz.fuzz.shipped import find

ANYWHERE = ("0.0.0.0", "::")


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(dashboard)


def dashboard(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...",
            help="Campaigns' directories and corpora of cases. Default: the newest campaign under "
            "campaigns/.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Default: this machine only.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")
    ] = 8765,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A name by which a browser may ask for this server, besides --host and this "
            "machine's local names. May be given several times.",
        ),
    ] = None,
    decide: Annotated[
        bool,
        typer.Option(
            "--decide",
            help="Let whoever opens the address with the key, which is printed, decide on the "
            "buckets of corpora. Without it the server only reads.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show campaigns and corpora as pages in a browser.

    The campaign as a whole, the list of buckets, everything about each, every failing program, and
    what became of a corpus when it was replayed. A campaign may be running: its pages follow it.
    The directories are only read, unless --decide lets people decide on the buckets of corpora.

    `attnfuzz dashboard campaigns/night corpus/cases`
    `attnfuzz dashboard found --decide`

    Whoever can reach the server can read everything in these directories: there is no password. It
    ends with Ctrl-C.
    """
    if host in ANYWHERE and not allow_host:
        raise UserError(
            f"--host {host}: expected --allow-host NAME too, by which browsers ask for this server"
        )
    from attnfuzz.fuzz.dashboard.permission import Permission
    from attnfuzz.fuzz.dashboard.serving import listen, serve
    from attnfuzz.fuzz.dashboard.sources import sources

    shown = sources([find(one) for one in directories] if directories else [newest_campaign()])
    try:
        listening = listen(host, port)
    except OSError as error:
        raise UserError(os_sentence(error, Path(f"--host {host} --port {port}"))) from error
    name = (allow_host or [host])[0] if host in ANYWHERE else host
    with listening:
        place = f"[{name}]" if ":" in name else name
        address = f"http://{place}:{listening.getsockname()[1]}/"
        permission = Permission() if decide else None
        writes = f"{address}decide?key={permission.key}" if permission else None
        if as_json:
            emit({"address": address} | ({"decide": writes} if writes else {}))
        else:
            say(f"{address} (Ctrl-C ends it)")
            if writes:
                say(f"{writes} (to decide, too: keep it to yourself)")
        sys.stdout.flush()  # whoever reads a pipe waits for it
        serve(shown, listening, [host, *(allow_host or ())], permission)
