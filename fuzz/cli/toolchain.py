"""`toolchain`: torch releases installed beside one another, each under a name."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from attnfuzz.fuzz.cli.common import Json, console, emit, note
from attnfuzz.fuzz.errors import EXIT_CHANGED, user_path
from attnfuzz.fuzz.report.escape import say

OWN = "(default)"
"""Shown in the place of a name for the interpreter that runs attnfuzz."""

toolchain = typer.Typer(
    help="Install releases of torch beside one another, each under a name.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="What the toolchain is called.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    toolchain.command()(add)
    toolchain.command("list")(list_all)
    toolchain.command()(remove)
    app.add_typer(toolchain, name="toolchain")


def add(
    name: Name,
    torch: Annotated[
        str,
        typer.Option(
            "--torch",
            metavar="VERSION",
            help="2.15.0; 2.15 is its newest patch; 2.15.0+cpu, or a nightly's version, with the "
            "--index that has it.",
        ),
    ],
    index: Annotated[
        list[str] | None,
        typer.Option(
            "--index",
            metavar="URL",
            help="An index of packages to search too. May be given several times.",
        ),
    ] = None,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="PACKAGE", help="Install this too. May be given several times."
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PYTHON", help="Of which Python. Default: the one that runs this."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a toolchain: a virtual environment with a release of torch.

    uv makes it where that is installed, else venv and pip do. Indexes that they are configured for
    are searched in any case. It takes its place once its torch can be imported; what fails, or is
    interrupted, leaves nothing that could be taken for a toolchain. They lie in a folder of yours
    that `attnfuzz toolchain list` names; the variable ATTNFUZZ_TOOLCHAINS names another.

    `attnfuzz toolchain add torch-2.15 --torch 2.15.0`
    `attnfuzz toolchain add cpu-2.14 --torch 2.14.1+cpu --index https://download.pytorch.org/whl/cpu`

    Exit codes: 0 when it is there, 2 when it cannot be had.
    """
    from attnfuzz.fuzz.toolchains.making import check, make
    from attnfuzz.fuzz.toolchains.named import home

    check(name, torch, index or (), packages or ())
    note(f"{name}: torch {torch} is downloaded and installed below {home()}, where {free()}")
    made = make(
        name, torch, indexes=index or (), packages=packages or (), python=python or sys.executable
    )
    if as_json:
        emit({"name": name, "python": made.python, "torch": made.record.torch})
    else:
        say(f"{name}: torch {made.record.torch}, Python {made.record.python}")


def list_all(as_json: Json = False) -> None:
    """List the toolchains: versions, size, and the targets that each can serve.

    Imports torch in each, which takes some seconds. The first row is the interpreter that runs
    attnfuzz. Exit codes: 0; 1 when there is one that cannot be used.
    """
    from rich.table import Table

    from attnfuzz.fuzz.toolchains.named import home, toolchains, unusable

    rows = [_described(OWN, sys.executable, None)]
    rows += [_described(one.name, one.python, one.folder) for one in toolchains()]
    broken = unusable()
    if as_json:
        emit({"folder": str(home()), "toolchains": [vars(row) for row in rows], "broken": broken})
    else:
        columns = ("name", "torch", "Python", "compiler", "on disk", "targets")
        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            size = "" if row.bytes is None else f"{row.bytes / 1e9:.1f} GB"
            served = row.error or grouped(row.targets)
            table.add_row(row.name, row.torch, row.python, row.compiler, size, served)
        console().print(table)
        for name in broken:
            say(f"{name}: broken, or never finished; `attnfuzz toolchain remove {name}`")
        say(f"in {home()}, where {free()}")
    raise typer.Exit(EXIT_CHANGED if broken or any(row.error for row in rows) else 0)


def remove(name: Name) -> None:
    """Take a toolchain away, or what is left of one that was never finished.

    Exit codes: 0, and 2 when there is none of that name.
    """
    from attnfuzz.fuzz.toolchains.making import remove as take_away

    take_away(name)


@dataclass(frozen=True)
class Row:
    """A toolchain as it is listed; `bytes` on disk, `targets` that it serves; `error` says why it
    serves none."""

    name: str
    path: str
    torch: str
    python: str
    compiler: str
    bytes: int | None
    targets: list[str]
    error: str | None


def _described(name: str, python: str, folder: Path | None) -> Row:
    from attnfuzz.actors.targets.availability import probe, statuses
    from attnfuzz.actors.targets.cxx import compiler_version

    found: dict[str, Any] = probe(python)
    served = [status.name for status in statuses(found, python) if status.can_run]
    error = found.get("error")
    return Row(
        name=name,
        path=python,
        torch=found.get("torch", "none"),
        python=found.get("python", "?"),
        compiler=compiler_version(),
        bytes=None if folder is None else size(folder),
        targets=served,
        error=None if error is None else f"torch cannot be imported: {error}",
    )


def grouped(names: list[str]) -> str:
    """Names of targets in short: those of one sort by their number, "virtual-* (9)"."""
    sorts: dict[str, list[str]] = {}
    for name in names:
        sorts.setdefault(name.partition("-")[0], []).append(name)
    return ", ".join(
        many[0] if len(many) == 1 else f"{sort}-* ({len(many)})" for sort, many in sorts.items()
    )


def size(folder: Path) -> int:
    """Bytes that the folder takes on disk; what has several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for top, _, files in os.walk(folder):
        for file in files:
            entry = os.lstat(os.path.join(top, file))
            seen[entry.st_dev, entry.st_ino] = entry.st_blocks * 512
    return sum(seen.values())


def free() -> str:
    """ "77 GB are free", on the disk that toolchains lie on."""
    from attnfuzz.fuzz.toolchains.named import home

    folder = home()
    with user_path(folder):
        while not folder.exists():
            folder = folder.parent
        return f"{shutil.disk_usage(folder).free / 1e9:.0f} GB are free"
