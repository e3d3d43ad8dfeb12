"""What the commands share: options, consoles, reading programs, printing JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actors.target import TARGETS
from fuzz.errors import UserError, user_path

if TYPE_CHECKING:
    from rich.console import Console

    from generators.program import Program

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Preload = Annotated[
    list[Path] | None,
    typer.Option(
        "--preload",
        metavar="FILE",
        help="A Python file to execute in the sandbox before the program: registers a kernel, "
        "loads an out-of-tree back-end, plants a fault. May be given several times.",
    ),
]
Toolchain = Annotated[
    Path | None,
    typer.Option(
        "--toolchain",
        metavar="PYTHON",
        help="The Python whose torch is tested; it needs nothing of ours. Default: this one.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        metavar="TARGET",
        help="Where to run: cpu (default), or another that `attnfuzz targets` names.",
    ),
]
ProgramFile = Annotated[
    str, typer.Argument(metavar="PROGRAM.yaml", help="A program; - reads standard input.")
]


def emit(data: Any) -> None:
    """Prints `data` as one line of JSON on stdout."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")


def console() -> Console:
    """A console on stdout; as wide as the terminal, or 120 columns where there is none."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def note(text: str) -> None:
    """One line for the person who waits; stderr, so that stdout stays the answer."""
    print(text, file=sys.stderr)


def read_program(name: str) -> Program:
    """The program in file `name`, or on standard input for "-". Raises ProgramError."""
    from generators.codec import load_program
    from generators.safe_yaml import MAX_BYTES, read_text

    if name == "-":
        return load_program(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
    return load_program(read_text(name), name)


def python_files(paths: Sequence[Path] | None) -> tuple[Path, ...]:
    """Preload files as absolute paths; UserError for one that cannot be read."""
    for path in paths or ():
        with user_path(path), path.open("rb"):
            pass
    return tuple(path.resolve() for path in paths or ())


def interpreter(toolchain: Path | None) -> str:
    """The toolchain's interpreter as an absolute path, our own by default; UserError when missing.

    Symbolic links are kept: a virtual environment's `python` is one, and is what makes it one.
    """
    if toolchain is None:
        return sys.executable
    if not toolchain.is_file():
        raise UserError(f"{toolchain}: expected a Python interpreter, found no such file")
    return str(toolchain.absolute())


def check_target(target: str, program: Program, where: str, preload: bool) -> None:
    """Raises UserError unless `program`, read from `where`, can be run on `target`; `preload`:
    files are loaded before it."""
    if target not in TARGETS:
        raise UserError(f"--target: expected one of {', '.join(TARGETS)}, got {target!r}")
    unfit = TARGETS[target].unfit(program, preload)
    if unfit is not None:
        raise UserError(f"{where}: {unfit}")


def sha256(path: Path) -> str:
    """Hex digest of the file at `path`."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
