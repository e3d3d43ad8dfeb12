"""Cases are replayed: each on its target, with the preload files that it was recorded with."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets import availability
from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.case import Case
from attnfuzz.fuzz.environment import lacks_cpu
from attnfuzz.fuzz.errors import UserError, user_path
from attnfuzz.fuzz.pool import opened
from attnfuzz.fuzz.pool.tasks import RunTask
from attnfuzz.fuzz.replay.verdict import Replayed, not_run, recorded, replay
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import FailureKind
from attnfuzz.generators.model.program import Program


@dataclass(frozen=True)
class Places:
    """Where cases lie (`folders`) and run: the target of each, the interpreter, files to execute
    before, whether those stored with the cases are, how many at a time, and what is called with
    a line for each result. `lenient`: what the toolchain cannot do at all leaves cases not run,
    and is no error."""

    folders: Sequence[Path]
    targets: Sequence[str]
    python: str
    files: Sequence[Path]
    allow_preload: bool
    workers: int | None
    report: Callable[[str], None]
    lenient: bool = False

    def missing(self) -> dict[str, str]:
        """Of the wanted targets those that are not to be had, and why. Raises UserError where
        that leaves nothing to run."""
        wanted = set(self.targets)
        if wanted == {DEFAULT}:
            return {}
        could = {status.name: status for status in availability.targets(self.python)}
        unknown = {name: "this attnfuzz does not know it" for name in wanted - could.keys()}
        found = {name: could[name].reason for name in wanted - unknown.keys()
                 if not could[name].can_run}  # fmt: skip
        if wanted == {*found, *unknown} and not self.lenient:
            name, why = min((found | unknown).items())
            raise UserError(f"target {name}: {why}")
        return found | unknown


def replay_all(cases: Sequence[Case], at: Places) -> tuple[list[Replayed], list[dict[str, str]]]:
    """A result for each case, and the environment it ran in. Cases with the same target that need
    the same preload files share their sandboxes. Among others, those of a kernel's package that the
    toolchain lacks are not run, nor those that the target cannot take. Raises UserError where it
    can take none."""
    missing = at.missing()
    results: dict[int, Replayed] = {}
    there: list[dict[str, str]] = [{} for _ in cases]
    with Scratch.create() as scratch:  # gone with everything in it, however this ends
        groups: dict[tuple[str, tuple[Path, ...], str | None], list[int]] = {}
        for place, case in enumerate(cases):
            unfit = _unfit(case, at.targets[place], bool(at.files))
            if unfit is not None:
                results[place] = not_run(recorded(case), unfit)
                if len(results) == len(cases) and not at.lenient:
                    raise UserError(f"{at.folders[place]}: {unfit}")
                at.report(f"not run      {at.folders[place]}: {unfit}")
                continue
            needed = _preload_of(case, at.folders[place], at.files, at.allow_preload, scratch.root)
            package = plugin_of(case.program).package
            groups.setdefault((at.targets[place], needed, package), []).append(place)
        for (target, needed, package), places in groups.items():
            chosen = [cases[place] for place in places]
            known = [recorded(case) for case in chosen]

            def settled(position: int, result: Replayed, places: list[int] = places) -> None:
                at.report(f"{result.summary:12} {at.folders[places[position]]}")

            try:
                if target in missing:
                    raise UserError(missing[target])
                count = min(at.workers or len(os.sched_getaffinity(0)), len(places))
                with opened.pool_in(scratch.root, at.python, needed, count, target) as many:
                    here = many.environment()
                    hurried = frozenset() if TARGETS[target].starts_cold else _hangs(chosen)
                    evaluate = partial(
                        opened.outcomes,
                        many,
                        task=partial(_task, hurried),
                        where=partial(_where, [(cases[p], at.folders[p]) for p in places]),
                    )
                    with _as_stored(scratch.root, at.folders[places[0]]):
                        replayed = replay(known, evaluate, settled)
            except (UserError, SandboxError) as error:
                of_package = package is not None and len(groups) > 1
                if not at.lenient and target not in missing and not of_package:
                    raise
                replayed, here = [not_run(one, str(error)) for one in known], {}
                at.report(f"not run      {counted(len(places), 'case')} of {target}: {error}")
            for place, result in zip(places, replayed, strict=True):
                there[place], results[place] = here, result
    return [results[place] for place in range(len(cases))], there


def _unfit(case: Case, target: str, preload: bool) -> str | None:
    """Why the target cannot take the case's program, or this machine not show it; None else."""
    lacks = lacks_cpu(case.environment) if target == case.environment.get("target") else None
    if lacks is not None:
        return lacks
    known = TARGETS.get(target)
    return None if known is None else known.unfit(case.program, preload or bool(case.preload))


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


def _hangs(cases: Sequence[Case]) -> frozenset[str]:
    return frozenset(
        program_id(case.program) for case in cases if case.failure.kind is FailureKind.HANG
    )


def _task(hangs: frozenset[str], program: Program) -> RunTask:
    """What hung before is given a quarter of the usual time, once: it would use all of it."""
    if program_id(program) not in hangs:
        return RunTask((program,))
    settings = RunSettings(deadlines=Deadlines().times(0.25), confirm_hang=False)
    return RunTask((program,), settings)


def _preload_of(
    case: Case, folder: Path, files: Sequence[Path], allow_preload: bool, scratch: Path
) -> tuple[Path, ...]:
    """The files to execute before a case: the ones given, and where that is allowed the stored
    copies of those that it was recorded with and that were not given."""
    given = {sha256(path.read_bytes()).hexdigest() for path in files}
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
