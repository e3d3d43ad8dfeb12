"""The command line `attnfuzz`: one file per command, errors and exit codes in one place.

Every command imports what it needs when it is called, so that `--help` and `generate` start at
once.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from attnfuzz.fuzz.cli import (
    adopt,
    bisect,
    dashboard,
    decide,
    generate,
    issue,
    launch,
    minimize,
    render,
    replay,
    report,
    run,
    show,
    submit,
    targets,
    toolchain,
    triage,
)
from attnfuzz.fuzz.cli.common import emit, note
from attnfuzz.fuzz.errors import (
    EXIT_BAD_INPUT,
    EXIT_DEFECT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    one_line,
    sentence,
)
from attnfuzz.fuzz.report.escape import plain

EXIT_PIPE_CLOSED = 141

HELP = """Finds bugs in PyTorch attention.

Random attention programs run in sandboxes and are judged against float64 references; what fails is
confirmed, minimized, put into one bucket per cause, and kept with a script that shows it.

Exit codes: 0 done, and nothing failed or changed; 1 done, and something failed or changed; 2 bad
input, reported in one sentence; 70 a defect of attnfuzz, with its traceback; 130 interrupted.
With --json every command prints JSON on stdout, an error as {"error": "…"}.
"""

app = typer.Typer(
    name="attnfuzz",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from attnfuzz.fuzz.environment import version

        typer.echo(f"attnfuzz {version('attnfuzz')}, torch {version('torch')}")
        raise typer.Exit


@app.callback()
def attnfuzz(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions."),
    ] = False,
) -> None:
    """Options of the command itself; the commands are below."""


attnfuzz.__doc__ = None  # the help is HELP
for command in (
    launch,
    submit,
    triage,
    show,
    issue,
    dashboard,
    report,
    adopt,
    decide,
    replay,
    run,
    minimize,
    generate,
    render,
    bisect,
    targets,
    toolchain,
):
    command.register(app)


def _add_bench(arguments: Sequence[str]) -> None:
    """Adds the group `bench` where it is called or listed: it needs all of a campaign's modules,
    which no other command shall wait for."""
    if not arguments or arguments[0] in ("bench", "-h", "--help"):
        importlib.import_module("attnfuzz.fuzz.bench").register(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; the console script."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names may be any bytes
    try:
        _add_bench(arguments)
        code = app(args=arguments, prog_name="attnfuzz", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_PIPE_CLOSED
    except Exception as error:
        return _report(error, as_json)
    return code if isinstance(code, int) else EXIT_OK


def _report(error: Exception, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # which has printed the help
        return EXIT_OK
    # A usage error of Click, or of the copy of it that typer bundles: known by its method.
    usage: Any = getattr(error, "format_message", None)
    message = one_line(usage()) if usage is not None else sentence(error)
    if message is None:
        print(plain(traceback.format_exc()), end="", file=sys.stderr)
        message, code = f"{type(error).__name__}: {one_line(str(error))}", EXIT_DEFECT
    else:
        code = EXIT_BAD_INPUT
        if not as_json:
            note(f"attnfuzz: {message}")
    try:
        if as_json:
            emit({"error": message})
        sys.stdout.flush()
    except OSError:
        _abandon_stdout()
        if as_json:
            note(f"attnfuzz: {message}")
    return code


def _abandon_stdout() -> None:
    """Sends what is still buffered to nowhere: flushing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
