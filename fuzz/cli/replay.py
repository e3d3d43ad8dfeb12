"""`replay`: recorded cases, run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from attnfuzz.fuzz import shipped
from attnfuzz.fuzz.cli.cases import AllowPreload, Directory, OnTarget, select
from attnfuzz.fuzz.cli.common import (
    MAX_WORKERS,
    AllowFunction,
    Json,
    Preload,
    console,
    emit,
    interpreter,
    note,
)
from attnfuzz.fuzz.errors import EXIT_CHANGED
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.escape import say

if TYPE_CHECKING:
    from attnfuzz.corpus.case import Case
    from attnfuzz.fuzz.replay.session import Places
    from attnfuzz.fuzz.replay.verdict import Replayed


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
    directory: Directory = None,
    preload: Preload = None,
    allow_preload: AllowPreload = False,
    allow_function: AllowFunction = None,
    toolchain: Annotated[
        str | None,
        typer.Option(
            "--toolchain",
            metavar="NAME|PYTHON[,…]",
            help="Whose torch is tested, as for `run`. Several give a table of cases by toolchain.",
        ),
    ] = None,
    target: OnTarget = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_WORKERS, help="Sandboxes at work. Default: one a core."),
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as Markdown.")
    ] = False,
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
    The same failure in another release's words (another wrapper around the same error, another
    frame) is as recorded too, and said to be so.

    With several toolchains it gives a table: what each case does with each.

    Data in a corpus is never executed. A case recorded with preload files therefore needs either
    `--preload FILE` with a file of the same SHA-256, or `--allow-preload`, which executes the copy
    that is stored with the case: say so only for a corpus from people you trust. So does a case
    whose kernel is a function of somebody's own: it is imported and called only with
    `--allow-function MODULE:NAME`, or `--allow-preload`. The cases shipped with attnfuzz need none
    of these.

    A case runs on the target that it was recorded on. Where one of a virtual card is run on a
    device instead (`--target cuda`), that confirms or refutes it, which is recorded beside the
    case. One whose target is not to be had with this toolchain (a virtual card without triton, say)
    is not run, which is reported and counted. A replay of a whole campaign or corpus is written
    down in its `replays.jsonl`, which the dashboard shows.

    With `--record` the histories of the corpus say with which torch a bucket has stopped failing
    and with which it came back, where that is not known. The next campaigns and `triage` tell it,
    and the page of a bucket shows what its cases do with each release.

    `attnfuzz replay campaigns/night --toolchain torch-2.12`
    `attnfuzz replay --toolchain torch-2.12,torch-2.15,/opt/nightly/bin/python --markdown`
    `attnfuzz replay 3f9a --dir campaigns/night`

    Exit codes: 0 when every case that was run behaves as recorded, 1 when any does not, 2 when a
    case, a preload file, the target or the toolchain cannot be used, or no case could be run.
    """
    from attnfuzz.fuzz.replay.confirmations import record as record_confirmations
    from attnfuzz.fuzz.replay.history import note_replay
    from attnfuzz.fuzz.replay.noting import Noted, note_results
    from attnfuzz.fuzz.replay.session import Places, replay_all

    chosen = select(paths or (), directory, preload, allow_preload, allow_function, target)
    cases, folders, on = chosen.cases, chosen.folders, chosen.targets
    pythons = _interpreters(toolchain)
    several = len(pythons) > 1 or as_markdown
    report = _silent if as_json else note if several else say
    places = Places(
        folders, on, next(iter(pythons.values())), chosen.files, chosen.allowed, workers, report
    )
    if several:
        _matrix(cases, places, pythons, as_markdown, as_json, record)
    results, there = replay_all(cases, places)
    record_confirmations(folders, cases, on, results, there, report=report)
    whole = _whole(paths or (), directory)
    if whole is not None:
        note_replay(whole, cases, results, there, report)
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
    behaves = all(one.as_recorded or one.verdict.value == "not_run" for one in results)
    raise typer.Exit(0 if behaves else EXIT_CHANGED)


def _interpreters(given: str | None) -> dict[str, str]:
    """The interpreters of the toolchains given, by what each is called."""
    from attnfuzz.fuzz.toolchains.named import shown

    one = given is None or Path(given).is_file()
    pythons = [
        interpreter(each) for each in ([given] if one or given is None else given.split(","))
    ]
    names = Counter(map(shown, pythons))
    return {shown(each) if names[shown(each)] == 1 else each: each for each in pythons}


def _matrix(
    cases: Sequence[Case],
    at: Places,
    pythons: Mapping[str, str],
    markdown: bool,
    as_json: bool,
    record: bool,
) -> NoReturn:
    """All cases with each toolchain, as a table; the command's end."""
    from attnfuzz.fuzz.replay.matrix import AS_RECORDED, Result, column
    from attnfuzz.fuzz.replay.noting import note_results
    from attnfuzz.fuzz.report import matrix

    columns = []
    for name, python in pythons.items():
        at.report(f"{name}:")
        one = column(name, python, cases, at.folders, at)
        if record:
            note_results(at.folders, cases, at.targets, one.results, one.there)
        columns.append(one)
    named = [
        matrix.Named(folder.parent.name.partition("-")[0], case.id, target, str(folder))
        for case, folder, target in zip(cases, at.folders, at.targets, strict=True)
    ]
    if as_json:
        emit(matrix.as_data(named, columns))
    elif markdown:
        say(matrix.as_markdown(named, columns))
    else:
        console().print(matrix.table(named, columns))
        for line in matrix.notes(named, columns):
            say(line)
    results = {cell.result for one in columns for cell in one.cells}
    raise typer.Exit(EXIT_CHANGED if results - {*AS_RECORDED, Result.NOT_RUN} else 0)


def _silent(line: str) -> None:
    """Prints nothing: the answer is JSON."""


def _whole(paths: Sequence[Path], directory: Path | None) -> Path | None:
    """The campaign or corpus all of whose cases are replayed, unless it is an installed one."""
    from attnfuzz.corpus.store.store import DATABASE
    from attnfuzz.fuzz.report.findings import bucket_folders

    given = [directory] if not paths and directory else paths
    if len(given) != 1:
        return None
    one = shipped.find(given[0])
    installed = one.resolve().is_relative_to((shipped.HOME / "corpus").resolve())
    is_whole = one.is_dir() and ((one / DATABASE).exists() or bucket_folders(one))
    return one if is_whole and not installed else None


def _print_changes(
    cases: Sequence[Case], results: Sequence[Replayed], there: Sequence[dict[str, str]]
) -> None:
    """What differs between where the changed cases were recorded and where they ran."""
    from attnfuzz.fuzz.environment import differences
    from attnfuzz.fuzz.report.tables import facts

    shown: list[dict[str, tuple[str, str]]] = []
    for case, result, now in zip(cases, results, there, strict=True):
        differs = differences(dict(case.environment), now)
        if (
            result.as_recorded
            or result.verdict.value == "not_run"
            or not differs
            or differs in shown
        ):
            continue
        shown.append(differs)
        pairs = {name: f"{then} then, {here} now" for name, (then, here) in differs.items()}
        say("of the cases that changed, some were recorded elsewhere:")
        console().print(facts(pairs))


def _json(folder: Path, case: Case, result: Replayed, now: dict[str, str]) -> dict[str, Any]:
    from attnfuzz.fuzz.environment import differences

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
