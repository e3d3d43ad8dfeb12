"""`bisect`: since which torch a case fails, or no longer does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnfuzz.fuzz.cli.cases import AllowPreload, Directory, OnTarget, select
from attnfuzz.fuzz.cli.common import AllowFunction, Json, Preload, emit, note
from attnfuzz.fuzz.cli.toolchain import free, size
from attnfuzz.fuzz.errors import EXIT_CHANGED, UserError
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.escape import say
from attnfuzz.generators.reading.complaints import mismatch

if TYPE_CHECKING:
    from attnfuzz.fuzz.cli.cases import Selected
    from attnfuzz.fuzz.replay.bisection import Step
    from attnfuzz.fuzz.toolchains.named import Toolchain


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(bisect)


def bisect(
    case: Annotated[
        Path, typer.Argument(metavar="CASE", help="A case, or the id of a bucket that has one.")
    ],
    directory: Directory = None,
    torch: Annotated[
        str | None,
        typer.Option(
            "--torch",
            metavar="RELEASES",
            help="2.11..2.15: of each minor release the newest patch; or a list, oldest first: "
            "2.12.0,2.12.1.",
        ),
    ] = None,
    toolchains: Annotated[
        str | None,
        typer.Option(
            "--toolchains",
            metavar="A,B,…",
            help="Names or interpreters of toolchains instead, oldest first.",
        ),
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(
            "--index",
            metavar="URL",
            help="Where releases are searched for too. May be given several times.",
        ),
    ] = None,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="PACKAGE", help="Installed in toolchains that are made, too."
        ),
    ] = None,
    preload: Preload = None,
    allow_preload: AllowPreload = False,
    allow_function: AllowFunction = None,
    target: OnTarget = None,
    as_json: Json = False,
) -> None:
    """Find the release of torch since which a case fails, or no longer does.

    As `git bisect`: the ends first, then the middle of what is left, and what cannot be told is
    skipped. The change may be either way. A release is bad where the case fails as recorded, good
    where it passes; neither says anything where it fails otherwise, is refused, or cannot run; and
    a release that cannot be installed or imported is broken. One failing run settles a release,
    passing ones are as many as the case's recorded reliability asks for.

    Toolchains that are there are used. The others that are needed are made, named torch-VERSION,
    and kept; a line says first how large they are.

    `attnfuzz bisect 344735ea --torch 2.11..2.15`
    `attnfuzz bisect 344735ea --toolchains torch-2.15,/opt/n1101/bin/python,/opt/n1102/bin/python`

    Exit codes: 0 when the change was found, 1 when there is none or it cannot be told, 2 when the
    case or the releases cannot be used.
    """
    from attnfuzz.fuzz.replay import bisection

    if (torch is None) == (toolchains is None):
        raise UserError(mismatch("bisect", "either --torch or --toolchains"))
    chosen = select([case], directory, preload, allow_preload, allow_function, target)
    if len(chosen.cases) > 1:
        ids = ", ".join(one.id for one in chosen.cases)
        raise UserError(f"{mismatch(case, 'one case', counted(len(chosen.cases), 'case'))}: {ids}")
    places = (
        _given(toolchains) if toolchains is not None else _released(torch or "", index, packages)
    )
    tell = note if as_json else say

    def test(place: int) -> Step:
        step = _tested(places[place], chosen)
        tell(f"{step.name}: {step.answer}{': ' if step.detail else ''}{step.detail}")
        return step

    then = chosen.cases[0].environment.get("torch", "")
    recorded = next((i for i, place in enumerate(places) if place.has(then)), None)
    found = bisection.bisect(len(places), test, recorded)
    if as_json:
        emit({"case": chosen.cases[0].id, "summary": found.summary, **asdict(found)})
    else:
        say(found.summary)
    raise typer.Exit(0 if found.changes else EXIT_CHANGED)


@dataclass(frozen=True)
class Place:
    """One toolchain to be tried: what it is called, what gives its interpreter, which may make it
    first and raise UserError, and whether it has the torch of a version."""

    name: str
    python: Callable[[], str]
    has: Callable[[str], bool]


def _given(toolchains: str) -> list[Place]:
    """Those that are named, which must all be there."""
    from attnfuzz.fuzz.toolchains.named import find, resolve

    names = toolchains.split(",")
    if len(names) < 2:
        raise UserError(
            mismatch("--toolchains", "two or more, separated by commas", repr(toolchains))
        )
    pythons = [str(resolve(name, "--toolchains")) for name in names]
    return [
        Place(name, partial(str, python), partial(_has, find(name)))
        for name, python in zip(names, pythons, strict=True)
    ]


def _has(toolchain: Toolchain | None, torch: str) -> bool:
    return (
        toolchain is not None
        and toolchain.record.torch.partition("+")[0] == torch.partition("+")[0]
    )


def _released(
    torch: str, indexes: Sequence[str] | None, packages: Sequence[str] | None
) -> list[Place]:
    """Releases: those that are there, and how each other would be made."""
    from attnfuzz.fuzz.toolchains import making
    from attnfuzz.fuzz.toolchains.releases import Release, releases

    making.check_indexes(indexes or ())
    making.check_packages(packages or ())
    wanted = releases(torch, "--torch")
    missing = [one.version for one in wanted if one.python is None]
    if missing:
        which = f"not there yet: torch {', '.join(missing)}"
        note(f"{which}; those that are needed are made, {how_large()}")

    def python(release: Release) -> str:
        if release.python is not None:
            return release.python
        note(f"torch {release.version} is downloaded and installed as {release.toolchain}")
        return making.make(
            release.toolchain, release.version, indexes=indexes or (), packages=packages or ()
        ).python

    return [Place(f"torch {one.version}", partial(python, one), one.has) for one in wanted]


def how_large() -> str:
    """What a toolchain takes on disk, by those that are there, and what is free."""
    from attnfuzz.fuzz.toolchains.named import toolchains

    sizes = [size(one.folder.resolve()) for one in toolchains()]
    each = (
        f"of at most {max(sizes) / 1e9:.1f} GB each as far as those that are there tell"
        if sizes
        else "of about 1 GB each (CPU builds) or 6 GB (CUDA builds)"
    )
    return f"{each}; {free()}"


def _tested(place: Place, chosen: Selected) -> Step:
    """What the case does with one toolchain."""
    from attnfuzz.actors.targets.availability import probe
    from attnfuzz.fuzz.replay.bisection import Answer, Step, answer_of
    from attnfuzz.fuzz.replay.matrix import Result, column
    from attnfuzz.fuzz.replay.session import Places

    try:
        python = place.python()
    except UserError as error:
        return Step(place.name, Answer.BROKEN, str(error))
    found = probe(python)
    if "error" in found:
        return Step(place.name, Answer.BROKEN, f"torch cannot be imported: {found['error']}")
    at = Places(
        chosen.folders, chosen.targets, python, chosen.files, chosen.allowed, 1, lambda line: None
    )
    (cell,) = column(place.name, python, chosen.cases, chosen.folders, at).cells
    if cell.result is Result.NOT_RUN and "cannot import torch" in cell.detail:
        return Step(place.name, Answer.BROKEN, cell.detail)
    told = f"{cell.result.value}{': ' if cell.detail else ''}{cell.detail}"
    return Step(place.name, answer_of(cell), f"{found['torch']}, {told}")
