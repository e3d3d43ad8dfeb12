"""The cases that a command is given: where they lie, and what running them may execute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.fuzz import shipped
from attnfuzz.fuzz.cli.common import check_function, check_target_name, python_files
from attnfuzz.fuzz.errors import user_path

if TYPE_CHECKING:
    from attnfuzz.corpus.case import Case

HEX = re.compile("[0-9a-f]+")

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Where buckets are looked up: a campaign's directory, or a corpus. Default: the "
        "cases shipped with attnfuzz.",
    ),
]
AllowPreload = Annotated[
    bool,
    typer.Option("--allow-preload", help="Execute the preload files stored with the cases."),
]
OnTarget = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="TARGET", help="Run on this target. Default: on each case's own."
    ),
]


@dataclass(frozen=True)
class Selected:
    """Cases, the folder and the target of each, files to execute before, and whether those that
    are stored with the cases may be executed."""

    cases: list[Case]
    folders: list[Path]
    targets: list[str]
    files: tuple[Path, ...]
    allowed: bool


def select(
    paths: Sequence[Path],
    directory: Path | None,
    preload: Sequence[Path] | None,
    allow_preload: bool,
    allow_function: Sequence[str] | None,
    target: str | None,
) -> Selected:
    """The cases at `paths`, or all in `directory`. Raises UserError, CaseError and ProgramError for
    what cannot be used or is not allowed."""
    from attnfuzz.corpus.case import find_cases, read_case

    if target is not None:
        check_target_name(target)
    wanted, are_shipped = _folders(paths, directory)
    folders = find_cases(wanted)
    cases = [read_case(folder) for folder in folders]
    files = python_files(preload)
    # What is shipped is as trusted as the code that reads it.
    allowed = allow_preload or are_shipped
    for case, folder in zip(cases, folders, strict=True):
        if not allowed:
            check_function(case.program, allow_function, str(folder))
    on = [target or case.environment.get("target", DEFAULT) for case in cases]
    return Selected(cases, folders, on, files, allowed)


def _folders(paths: Sequence[Path], directory: Path | None) -> tuple[list[Path], bool]:
    """The paths to look for cases at, and whether all of them are shipped. What is no path is a
    bucket of `directory`, or of what is shipped. Raises UserError."""
    from attnfuzz.fuzz.report.pages import bucket_folder_of

    home = shipped.CASES if directory is None else shipped.find(directory)
    wanted = [home] if not paths else []
    for path in map(shipped.find, paths):
        with user_path(path):
            is_id = HEX.fullmatch(str(path)) and not path.exists()
        wanted.append(bucket_folder_of(home, str(path)) if is_id else path)
    return wanted, directory is None and all(home in (one, one.parent) for one in wanted)
