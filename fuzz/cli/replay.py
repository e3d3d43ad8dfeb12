"""`replay`: recorded cases, run again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnfuzz.actors.targets.registry import DEFAULT
from attnfuzz.fuzz import shipped
from attnfuzz.fuzz.cli.common import (
    MAX_WORKERS,
    AllowFunction,
    Json,
    Preload,
    Toolchain,
    check_function,
    check_target,
    console,
    emit,
    interpreter,
    python_files,
)
from attnfuzz.fuzz.environment import differences
from attnfuzz.fuzz.errors import EXIT_CHANGED, user_path
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.escape import say

if TYPE_CHECKING:
    from attnfuzz.corpus.case import Case
    from attnfuzz.fuzz.replay.verdict import Replayed


HEX = re.compile("[0-9a-f]+")


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(replay)


def replay(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Cases, folders with cases below, or ids of buckets (or how they begin). Default: "
            "all in --dir.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Where buckets are looked up: a campaign's directory, or a corpus. Default: the "
            "cases shipped with attnfuzz.",
        ),
    ] = None,
    preload: Preload = None,
    allow_preload: Annotated[
        bool,
        typer.Option("--allow-preload", help="Execute the preload files stored with the cases."),
    ] = False,
    allow_function: AllowFunction = None,
    toolchain: Toolchain = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="Run on this target. Default: on each case's own."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_WORKERS, help="Sandboxes at work. Default: one a core."),
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Note in the buckets' histories which cases fail and which pass with this torch.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run recorded cases again: which of them no longer behave as recorded?

    Each `program.yaml` is validated and rendered afresh; the `repro.py` beside it is never
    executed. A case behaves as recorded when it fails with the same key; one such run settles it.
    Otherwise it is run again, as often as a failure of its recorded reliability needs to show with
    99% probability, and called fixed, changed, or flaky (it failed always, and now only sometimes).

    Data in a corpus is never executed. A case recorded with preload files therefore needs either
    `--preload FILE` with a file of the same SHA-256, or `--allow-preload`, which executes the copy
    that is stored with the case: say so only for a corpus from people you trust. So does a case
    whose kernel is a function of somebody's own: it is imported and called only with
    `--allow-function MODULE:NAME`, or `--allow-preload`. The cases shipped with attnfuzz need none
    of these.

    A case runs on the target that it was recorded on. Where one of a virtual card is run on a
    device instead (`--target cuda`), that confirms or refutes it, which is recorded beside the
    case. One whose target is not to be had with this toolchain (a virtual card without triton, say)
    is not run, which is reported and counted.

    With `--record` the histories of the corpus say with which torch a bucket has stopped failing
    and with which it came back, where that is not known. The next campaigns and `triage` tell it.

    `attnfuzz replay campaigns/night --toolchain /opt/torch-2.12/bin/python`
    `attnfuzz replay 3f9a --dir campaigns/night`

    Exit codes: 0 when every case that was run behaves as recorded, 1 when any does not, 2 when a
    case, a preload file, the target or the toolchain cannot be used, or no case could be run.
    """
    from attnfuzz.corpus.case import find_cases, read_case
    from attnfuzz.fuzz.replay.confirmations import record as record_confirmations
    from attnfuzz.fuzz.replay.noting import Noted, note_results
    from attnfuzz.fuzz.replay.session import Places, replay_all

    wanted, are_shipped = _folders(paths or (), directory)
    folders = find_cases(wanted)
    cases = [read_case(folder) for folder in folders]
    python, files = interpreter(toolchain), python_files(preload)
    # What is shipped is as trusted as the code that reads it.
    allowed = allow_preload or are_shipped
    if not allowed:
        for case, folder in zip(cases, folders, strict=True):
            check_function(case.program, allow_function, str(folder))
    if target is not None:
        for case, folder in zip(cases, folders, strict=True):
            check_target(target, case.program, str(folder), bool(files or case.preload))
    on = [target or case.environment.get("target", DEFAULT) for case in cases]
    report = _silent if as_json else say
    places = Places(folders, on, python, files, allowed, workers, report)
    results, there = replay_all(cases, places)
    record_confirmations(folders, cases, on, results, there, report=report)
    noted = note_results(folders, cases, on, results, there) if record else Noted()
    verdicts = Counter(result.verdict.value for result in results)
    if as_json:
        rows = zip(folders, cases, results, there, strict=True)
        counts = dict(sorted(verdicts.items()))
        emit(
            {
                "cases": [_json(*row) for row in rows],
                "counts": counts,
                **(vars(noted) if record else {}),
            }
        )
    else:
        _print_changes(cases, results, there)
        words = [f"{count} {name.replace('_', ' ')}" for name, count in sorted(verdicts.items())]
        say(f"{counted(len(cases), 'case')}: {', '.join(words)}")
        for bucket, torch in noted.stopped.items():
            say(f"stopped failing: {bucket} (passed with torch {torch})")
        for bucket, why in noted.came_back.items():
            say(f"came back: {bucket} ({why})")
    raise typer.Exit(EXIT_CHANGED if set(verdicts) - {"as_recorded", "not_run"} else 0)


def _silent(line: str) -> None:
    """Prints nothing: the answer is JSON."""


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


def _print_changes(
    cases: Sequence[Case], results: Sequence[Replayed], there: Sequence[dict[str, str]]
) -> None:
    """What differs between where the changed cases were recorded and where they ran."""
    from attnfuzz.fuzz.report.tables import facts

    shown: list[dict[str, tuple[str, str]]] = []
    for case, result, now in zip(cases, results, there, strict=True):
        differs = differences(dict(case.environment), now)
        if result.verdict in ("as_recorded", "not_run") or not differs or differs in shown:
            continue
        shown.append(differs)
        pairs = {name: f"{then} then, {here} now" for name, (then, here) in differs.items()}
        say("of the cases that changed, some were recorded elsewhere:")
        console().print(facts(pairs))


def _json(folder: Path, case: Case, result: Replayed, now: dict[str, str]) -> dict[str, Any]:
    differs = differences(dict(case.environment), now)
    return {
        "path": str(folder),
        "id": case.id,
        "verdict": result.verdict.value,
        "tells": result.summary,
        "expected": asdict(result.expected),
        "seen": [asdict(one) for one in result.seen],
        "environment": {name: list(pair) for name, pair in differs.items()},
    }
