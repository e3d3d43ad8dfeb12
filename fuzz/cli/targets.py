"""`targets`: what can run here, and why each other cannot."""

from __future__ import annotations

from dataclasses import asdict

import typer

from attnfuzz.fuzz.cli.common import Json, Toolchain, console, emit, interpreter


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(targets)


def targets(toolchain: Toolchain = None, as_json: Json = False) -> None:
    """Tell what can run here, and why each other target cannot.

    Asks the toolchain's own interpreter; takes some seconds, since it imports torch there.
    """
    from rich.table import Table

    from attnfuzz.actors.targets.availability import targets as find

    found = find(interpreter(toolchain, torch=False))
    if as_json:
        emit({"targets": [asdict(status) for status in found]})
        return
    table = Table("target", "runs here", "why", box=None, pad_edge=False, header_style="bold")
    for status in found:
        table.add_row(status.name, "yes" if status.can_run else "no", status.reason)
    console().print(table)
