"""`replay`: recorded cases, run again."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from attnfuzz.fuzz.campaign import shipped
from attnfuzz.fuzz.campaign.environment import differences
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
    sha256,
)
from attnfuzz.fuzz.errors import EXIT_CHANGED, UserError, user_path
from attnfuzz.fuzz.report.escape import say
from attnfuzz.fuzz.report.words import counted

if TYPE_CHECKING:
    from attnfuzz.corpus.case import Case
    from attnfuzz.fuzz.campaign.tasks import RunTask
    from attnfuzz.fuzz.replay import Recorded, Replayed
    from attnfuzz.generators.model.program import Program


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
    is not run, which is said and counted.

    `attnfuzz replay campaigns/night --toolchain /opt/torch-2.12/bin/python`
    `attnfuzz replay 3f9a --dir campaigns/night`

    Exit codes: 0 when every case that was run behaves as recorded, 1 when any does not, 2 when a
    case, a preload file, the target or the toolchain cannot be used, or no case could be run.
    """
    from attnfuzz.corpus.case import find_cases, read_case

    asked, are_shipped = _asked(paths or (), directory)
    folders = find_cases(asked)
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
    on = [target or case.environment.get("target", "cpu") for case in cases]
    places = _Places(folders, on, python, files, allowed, workers, not as_json)
    results, there = _results(cases, places)
    _record(folders, cases, on, results, there, tell=not as_json)
    told = Counter(result.verdict.value for result in results)
    if as_json:
        rows = zip(folders, cases, results, there, strict=True)
        emit({"cases": [_json(*row) for row in rows], "counts": dict(sorted(told.items()))})
    else:
        _print_changes(cases, results, there)
        counts = [f"{count} {name.replace('_', ' ')}" for name, count in sorted(told.items())]
        say(f"{counted(len(cases), 'case')}: {', '.join(counts)}")
    raise typer.Exit(EXIT_CHANGED if set(told) - {"as_recorded", "not_run"} else 0)


def _asked(paths: Sequence[Path], directory: Path | None) -> tuple[list[Path], bool]:
    """The paths to look for cases at, and whether all of them are shipped. What is no path is a
    bucket of `directory`, or of what is shipped. Raises UserError."""
    from attnfuzz.fuzz.report.pages import bucket_folder_of

    home = shipped.CASES if directory is None else shipped.find(directory)
    asked = [home] if not paths else []
    for path in map(shipped.find, paths):
        with user_path(path):
            is_id = HEX.fullmatch(str(path)) and not path.exists()
        asked.append(bucket_folder_of(home, str(path)) if is_id else path)
    return asked, directory is None and all(home in (one, one.parent) for one in asked)


def _where(of: Sequence[tuple[Case, Path]], program: Program) -> str:
    """The file of a case's program."""
    return next(str(folder / "program.yaml") for case, folder in of if case.program == program)


@contextmanager
def _as_stored(scratch: Path, folder: Path) -> Iterator[None]:
    """In errors, names the preload files of the case in `folder` where they are stored."""
    try:
        yield
    except UserError as error:
        copies = re.escape(f"{scratch}/") + r"\w{64}/"
        raise UserError(re.sub(copies, f"{folder}/preload/", str(error))) from None


@dataclass(frozen=True)
class _Places:
    """Where cases lie (`folders`) and run: the target of each, the interpreter, files to execute
    before, whether those stored with the cases are, how many at a time, and whether to tell."""

    folders: Sequence[Path]
    targets: Sequence[str]
    python: str
    files: Sequence[Path]
    allow_preload: bool
    workers: int | None
    tell: bool

    def missing(self) -> dict[str, str]:
        """Of the targets asked for those that are not to be had, and why. Raises UserError where
        that leaves nothing to run."""
        from attnfuzz.actors.targets.availability import targets

        asked = set(self.targets)
        if asked == {"cpu"}:
            return {}
        could = {status.name: status for status in targets(self.python)}
        unknown = {name: "this attnfuzz does not know it" for name in asked - could.keys()}
        found = {name: could[name].reason for name in asked - unknown.keys()
                 if not could[name].can_run}  # fmt: skip
        if asked == {*found, *unknown}:
            name, why = min((found | unknown).items())
            raise UserError(f"target {name}: {why}")
        return found | unknown


def _results(cases: Sequence[Case], at: _Places) -> tuple[list[Replayed], list[dict[str, str]]]:
    """A result for each case, and the environment it ran in. Cases with the same target that need
    the same preload files share their sandboxes."""
    from attnfuzz.actors.sandbox.scratch import Scratch
    from attnfuzz.actors.targets.registry import TARGETS
    from attnfuzz.fuzz.cli.pool import outcomes, pool_in
    from attnfuzz.fuzz.replay import not_run
    from attnfuzz.fuzz.replay import replay as run

    missing = at.missing()
    results: dict[int, Replayed] = {}
    there: list[dict[str, str]] = [{} for _ in cases]
    with Scratch.create() as scratch:  # gone with everything in it, however this ends
        groups: dict[tuple[str, tuple[Path, ...]], list[int]] = {}
        for place, case in enumerate(cases):
            needed = _preload_of(case, at.folders[place], at.files, at.allow_preload, scratch.root)
            groups.setdefault((at.targets[place], needed), []).append(place)
        for (target, needed), places in groups.items():
            chosen = [cases[place] for place in places]
            recorded = [_recorded(case) for case in chosen]

            def settled(position: int, result: Replayed, places: list[int] = places) -> None:
                if at.tell:
                    say(f"{result.tells:12} {at.folders[places[position]]}")

            if target in missing:
                results |= {
                    place: not_run(one) for place, one in zip(places, recorded, strict=True)
                }
                if at.tell:
                    those = counted(len(places), "case")
                    say(f"not run      {those} of {target}: {missing[target]}")
                continue
            count = min(at.workers or len(os.sched_getaffinity(0)), len(places))
            with pool_in(scratch.root, at.python, needed, count, target) as many:
                here = many.environment()
                for place in places:
                    there[place] = here
                hurried = frozenset() if TARGETS[target].starts_cold else _hangs(chosen)
                evaluate = partial(
                    outcomes,
                    many,
                    task=partial(_task, hurried),
                    where=partial(_where, [(cases[p], at.folders[p]) for p in places]),
                )
                with _as_stored(scratch.root, at.folders[places[0]]):
                    replayed = run(recorded, evaluate, settled)
                results |= dict(zip(places, replayed, strict=True))
    return [results[place] for place in range(len(cases))], there


def _record(
    folders: Sequence[Path],
    cases: Sequence[Case],
    on: Sequence[str],
    results: Sequence[Replayed],
    there: Sequence[dict[str, str]],
    *,
    tell: bool,
) -> None:
    """Writes beside each virtual finding that was run on a device what that has shown."""
    from attnfuzz.actors.targets.registry import TARGETS
    from attnfuzz.corpus.confirmation import Confirmation, add_confirmation

    for folder, case, name, result, now in zip(folders, cases, on, results, there, strict=True):
        recorded = TARGETS.get(case.environment.get("target", "cpu"))
        if recorded is None or recorded.stand_in is None or not TARGETS[name].can_confirm:
            continue
        if result.verdict.value == "not_run":
            continue
        verdict = _says(recorded.name, case.environment, result, now)
        if verdict is None:
            if tell:
                say(f"{result.tells}, on another card or torch, says nothing: {folder}")
            continue
        latest = Confirmation(
            target=name,
            card=now.get("card", "unknown"),
            torch=now.get("torch", "unknown"),
            verdict=verdict,
            saw=None if verdict == "confirmed" else result.tells,
        )
        with user_path(folder):
            add_confirmation(folder, latest)
        if tell:
            say(f"{latest}: {folder}")


def _says(
    virtual: str, recorded: Mapping[str, str], result: Replayed, now: Mapping[str, str]
) -> Literal["confirmed", "refuted"] | None:
    """What a device's replay says of a finding of the target `virtual`. What fails on a small card
    may pass on a large one, and what fails with one torch with another: only the same
    architecture and release refute, and only by passing."""
    if result.verdict.value in ("as_recorded", "flaky"):
        return "confirmed"
    stands_for = virtual.partition("-")[2]
    alike = now.get("architecture", "").startswith(stands_for) and (
        _release(now) == _release(recorded)
    )
    passed = all(one.status == "passed" for one in result.seen)
    return "refuted" if alike and passed and result.verdict.value == "fixed" else None


def _release(environment: Mapping[str, str]) -> str:
    return environment.get("torch", "").partition("+")[0]


def _hangs(cases: Sequence[Case]) -> frozenset[str]:
    from attnfuzz.generators.model.codec import program_id
    from attnfuzz.generators.model.outcome import FailureKind

    return frozenset(
        program_id(case.program) for case in cases if case.failure.kind is FailureKind.HANG
    )


def _task(hangs: frozenset[str], program: Program) -> RunTask:
    """What hung before is given a quarter of the usual time, once: it would use all of it."""
    from attnfuzz.actors.sandbox.job import Deadlines
    from attnfuzz.fuzz.campaign.tasks import RunTask
    from attnfuzz.generators.model.codec import program_id

    if program_id(program) not in hangs:
        return RunTask((program,))
    return RunTask((program,), deadlines=Deadlines().times(0.25), confirm_hang=False)


def _recorded(case: Case) -> Recorded:
    from attnfuzz.fuzz.replay import Recorded

    runs = max(1, case.runs)
    failures = case.failures if case.runs else 1
    return Recorded(program=case.program, failure=case.failure, runs=runs, failures=failures)


def _preload_of(
    case: Case, folder: Path, files: Sequence[Path], allow_preload: bool, scratch: Path
) -> tuple[Path, ...]:
    """The files to execute before a case: the ones given, and where that is allowed the stored
    copies of those that it was recorded with and that were not given."""
    given = {sha256(path) for path in files}
    stored = []
    for one in case.preload:
        if one.sha256 in given:
            continue
        if not allow_preload:
            raise UserError(
                f"{folder}: recorded with preload file {one.name}, and data in a corpus is not "
                f"executed; give --preload FILE with SHA-256 {one.sha256}, or --allow-preload"
            )
        copy = scratch / one.sha256 / one.name
        with user_path(copy):
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(one.text.encode())
        stored.append(copy)
    return (*files, *stored)


def _print_changes(
    cases: Sequence[Case], results: Sequence[Replayed], there: Sequence[dict[str, str]]
) -> None:
    """What differs between where the changed cases were recorded and where they ran."""
    from attnfuzz.fuzz.report.tables import facts

    told: list[dict[str, tuple[str, str]]] = []
    for case, result, now in zip(cases, results, there, strict=True):
        differs = differences(dict(case.environment), now)
        if result.verdict in ("as_recorded", "not_run") or not differs or differs in told:
            continue
        told.append(differs)
        pairs = {name: f"{then} then, {here} now" for name, (then, here) in differs.items()}
        say("of the cases that changed, some were recorded elsewhere:")
        console().print(facts(pairs))


def _json(folder: Path, case: Case, result: Replayed, now: dict[str, str]) -> dict[str, Any]:
    differs = differences(dict(case.environment), now)
    return {
        "path": str(folder),
        "id": case.id,
        "verdict": result.verdict.value,
        "tells": result.tells,
        "expected": asdict(result.expected),
        "seen": [asdict(one) for one in result.seen],
        "environment": {name: list(pair) for name, pair in differs.items()},
    }
