"""What the commands share: options, consoles, reading programs, printing JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.report.escape import plain
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import MAX_BYTES, read_text

if TYPE_CHECKING:
    from attnfuzz.fuzz.report.console import PlainConsole
    from attnfuzz.generators.model.program import Program

MAX_WORKERS = 1024

CAMPAIGNS = Path("campaigns")

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
AllowFunction = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-function",
        metavar="MODULE:NAME",
        help="A function of your own that a program may name as its kernel, which is imported and "
        "called. May be given several times.",
    ),
]
Toolchain = Annotated[
    str | None,
    typer.Option(
        "--toolchain",
        metavar="NAME|PYTHON",
        help="Whose torch is tested: the name of a toolchain, or a Python with torch; it needs "
        "nothing of ours. Default: this one.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="Where to run: cpu (default), or another that `attnfuzz targets` names.",
    ),
]
ProgramFile = Annotated[
    str, typer.Argument(metavar="PROGRAM.yaml", help="A program; - reads standard input.")
]


def emit(data: Any) -> None:
    """Prints `data` as one line of JSON on stdout, in ASCII: nothing in it steers a terminal."""
    sys.stdout.write(json.dumps(data, allow_nan=False) + "\n")


def console() -> PlainConsole:
    """A console on stdout; as wide as the terminal, or 120 columns where there is none."""
    from attnfuzz.fuzz.report.console import PlainConsole

    return PlainConsole(width=None if sys.stdout.isatty() else 120)


def note(text: str) -> None:
    """One line for the person who waits; stderr, so that stdout stays the answer."""
    print(plain(text), file=sys.stderr)


def read_program(name: str) -> Program:
    """The program in file `name`, or on standard input for "-". Raises ProgramError."""
    from attnfuzz.generators.model.codec import load_program

    if name == "-":
        return load_program(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
    return load_program(read_text(name), name)


def python_files(paths: Sequence[Path] | None) -> tuple[Path, ...]:
    """Preload files as absolute paths. Raises ProgramError for one that cannot be read as text."""
    for path in paths or ():
        read_text(path)
    return tuple(path.resolve() for path in paths or ())


def interpreter(toolchain: str | None, torch: bool = True) -> str:
    """The interpreter of a toolchain, given by name or path, as an absolute path, our own by
    default; UserError where it is none, or has no torch if `torch`."""
    from attnfuzz.fuzz.environment import check_interpreter
    from attnfuzz.fuzz.toolchains.named import resolve

    if toolchain is None:
        return sys.executable
    python = str(resolve(toolchain, "--toolchain"))
    check_interpreter(python, "--toolchain", torch)
    return python


def check_target_name(target: str) -> None:
    """Raises UserError where there is no target of that name."""
    from attnfuzz.actors.targets.registry import TARGETS

    if target not in TARGETS:
        raise UserError(mismatch("--target", f"one of {', '.join(TARGETS)}", repr(target)))


def check_target(target: str, program: Program, where: str, preload: bool) -> None:
    """Raises UserError unless `program`, read from `where`, can be run on `target`; `preload`:
    files are loaded before it."""
    from attnfuzz.actors.targets.registry import TARGETS

    check_target_name(target)
    unfit = TARGETS[target].unfit(program, preload)
    if unfit is not None:
        raise UserError(f"{where}: {unfit}")


def check_function(program: Program, allowed: Sequence[str] | None, where: str) -> None:
    """Raises UserError where running `program`, read from `where`, would import and call a function
    that nobody has allowed: a program is data, wherever it comes from."""
    from attnfuzz.generators.kernels.registry import plugin_of

    target = plugin_of(program).imports(program.kernel)
    if target is not None and target not in (allowed or ()):
        raise UserError(
            f"{where}: kernel.target: {target} would be imported and called; "
            f"give --allow-function {target} if it is yours"
        )


def newest_campaign() -> Path:
    """The directory under `campaigns/` whose database was written last."""
    from attnfuzz.corpus.store.store import DATABASE

    databases = list(CAMPAIGNS.glob(f"*/{DATABASE}"))
    if not databases:
        raise UserError(mismatch(CAMPAIGNS, "a campaign's directory there", "none; name one"))
    return max(databases, key=lambda path: (path.stat().st_mtime, path)).parent
