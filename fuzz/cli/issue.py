"""`issue`: the text of an issue about one bucket, for a person to complete and file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnfuzz.fuzz.cli.common import (
    AllowFunction,
    Json,
    Toolchain,
    check_function,
    emit,
    interpreter,
    newest_campaign,
    note,
)
from attnfuzz.fuzz.errors import EXIT_CHANGED, UserError, user_path
from attnfuzz.fuzz.report.escape import say
from attnfuzz.fuzz.shipped import find
from attnfuzz.generators.reading.complaints import mismatch


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(issue)


def issue(
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="Its id, or how the id begins.")],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="A campaign's directory, or a corpus. Default: the newest."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the text to this file instead of printing it.")
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, max=100, help="Clean processes that run the script.")
    ] = 3,
    toolchain: Toolchain = None,
    allow_function: AllowFunction = None,
    as_json: Json = False,
) -> None:
    """Write an issue about a bucket, in its receiver's form, for a person to complete.

    The script in it compares as torch's maintainers ask of fuzzers: `torch._dynamo.utils.same` at
    default tolerances with a float64 reference. It is run as it stands in clean processes first;
    torch's CompilerBisector, each layer of the compiler and `collect_env` are run too, which takes
    a minute or two. Where the script does not fail as it says no text is given.

    `attnfuzz issue 3f9a --dir campaigns/night --out issue.md`
    `attnfuzz issue 5023 --dir corpus/cases`

    Exit codes: 0 when the text was given, 1 when it was not, which one sentence explains, 2 when
    the bucket or the toolchain cannot be used.
    """
    from attnfuzz.corpus.files import write_atomically
    from attnfuzz.fuzz.issue.evidence import NotShown, check_device, gather, place
    from attnfuzz.fuzz.issue.text import issue_text
    from attnfuzz.fuzz.report.pages import page

    found = page(find(directory) if directory else newest_campaign(), bucket)
    check_function(found.program, allow_function, found.row.id)
    if found.preload:
        raise UserError(
            f"{found.row.id}: it was recorded with {', '.join(found.preload)} loaded first: what a "
            "preload file does is no fault of torch's to report"
        )
    python = interpreter(toolchain)
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UserError(mismatch("--out", "a file in a folder that is there", str(out)))
    try:
        check_device(found)
        with place(python) as here:
            evidence = gather(found, here, runs, lambda step: note(f"running: {step}"))
    except NotShown as reason:
        if as_json:
            emit({"issue": None, "why": str(reason)})
        else:
            note(f"attnfuzz: {reason}")
        raise typer.Exit(EXIT_CHANGED) from None
    text = issue_text(found, evidence)
    if out is not None:
        with user_path(out):
            write_atomically(out, text)
    if as_json:
        emit({"issue": text, "stands": evidence.stands, "bisection": evidence.bisection})
    elif out is None:
        say(text, end="")
