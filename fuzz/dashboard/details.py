"""Everything that the page of one bucket, or of one program, tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import Case, read_case
from attnfuzz.corpus.store.listing import Listed, Wanted
from attnfuzz.fuzz.dashboard import highlight, plots
from attnfuzz.fuzz.dashboard.error_map import error_maps
from attnfuzz.fuzz.dashboard.plots import Picture
from attnfuzz.fuzz.dashboard.queries import failures
from attnfuzz.fuzz.dashboard.queries import found as every
from attnfuzz.fuzz.dashboard.sources import Source
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.report.bucket import Page
from attnfuzz.fuzz.report.findings import bucket_folders, case_folders
from attnfuzz.fuzz.report.pages import page
from attnfuzz.fuzz.report.words import shared_keys, what_is_wrong, why_one
from attnfuzz.generators.model.codec import dump_program, program_id
from attnfuzz.generators.model.outcome import Failure, Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.render.module import source as source_of

FAILURES_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Another bucket that may have the same cause, and the keys that they share."""

    bucket: Bucket
    keys: list[str]


@dataclass(frozen=True, kw_only=True)
class BucketDetails:
    """A bucket's page. `matrix` has a row for each axis of its variants, with what each value did.
    `original` is the id of the program that was found, and `compared` that program beside the
    minimized one, where both are there. `cases` are the ids of its cases, and `programs` the
    failures of the campaign that belong to it, of `recorded` in all."""

    page: Page
    wrong: list[str]
    why: list[str]
    script: Markup
    program: Markup
    maps: list[tuple[str, Picture]]
    matrix: dict[str, dict[str, str]]
    compared: list[highlight.Compared]
    original: str
    related: list[Relation]
    cases: list[str]
    programs: list[Listed] = field(default_factory=list)
    recorded: int = 0


@dataclass(frozen=True, kw_only=True)
class ProgramDetails:
    """A program's page: its source as it is rendered afresh, and what became of it. `listed` is its
    row in the campaign; `bucket` the id of its bucket; `minimized` that of its simplest form."""

    name: str
    program: Markup
    source: Markup
    outcome: Outcome
    failure: Failure
    wrong: list[str]
    phases: Picture | None
    maps: list[tuple[str, Picture]]
    environment: Mapping[str, str]
    target: str = ""
    state: str = ""
    reliability: str = ""
    bucket: str = ""
    minimized: str = ""
    shard: int | None = None
    evaluated: int = 0


def bucket_details(source: Source, name: str) -> BucketDetails:
    """The bucket of `source` whose id begins with `name`. Raises UserError where there is none, and
    CaseError, StoreError or ProgramError."""
    rows = every(source).rows if source.is_campaign else None
    found = page(source.directory, name, rows)
    original, recorded = _original(source, found)
    listed = None
    if source.is_campaign and found.bucket is not None:
        listed = failures(source, Wanted(bucket=found.bucket.id), 0, FAILURES_SHOWN)
    text = dump_program(found.program)
    return BucketDetails(
        page=found,
        wrong=what_is_wrong(found.failure),
        why=[] if found.bucket is None else why_one(found.bucket),
        script=highlight.python(found.repro),
        program=highlight.yaml(text),
        maps=maps(found.failure),
        matrix=matrix(found.variants),
        compared=[] if recorded is None else highlight.compared(dump_program(recorded), text),
        original=original,
        related=[] if found.bucket is None else [
            Relation(bucket=one, keys=shared_keys(found.bucket, one)) for one in found.related
        ],
        cases=[Path(one).name for one in found.cases],
        programs=[] if listed is None else listed.rows,
        recorded=0 if listed is None else listed.total,
    )  # fmt: skip


def _original(source: Source, found: Page) -> tuple[str, Program | None]:
    """The id of the program that was found, and the program where it is recorded and is not the
    one that is shown."""
    shown = program_id(found.program)
    folder = next((Path(one) for one in found.cases if Path(one).name == shown), None)
    if folder is None:
        return "", None
    original = read_case(folder).original
    if original == shown or not source.is_campaign:
        return original, None
    with source.store() as store:
        row = store.failure(original)
    return original, None if row is None else row.program


def maps(failure: Failure) -> list[tuple[str, Picture]]:
    """A picture for each wrong output of which the evidence says where it is off."""
    found = []
    for one in error_maps(failure):
        places = f"{one.off:,} of {len(one.levels) * len(one.levels[0]):,} places"
        what = f"{places} are off" if one.complete else f"the {one.off} worst elements"
        found.append((one.output, plots.heat(one, f"Where {one.output} is off: {what}.")))
    return found


def matrix(variants: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """`variants` ("kernel=flex": "passes") by axis and value."""
    found: dict[str, dict[str, str]] = {}
    for name, result in variants.items():
        axis, _, value = name.partition("=")
        found.setdefault(axis, {})[value] = result
    return found


def program_details(source: Source, name: str) -> ProgramDetails:
    """The failing program of `source` with the id `name`. Raises UserError where there is none, and
    CaseError, StoreError or ProgramError."""
    if source.is_campaign:
        with source.store() as store:
            row = store.failure(name)
            if row is not None:
                best = row.best or row.program
                return _program(
                    row.program,
                    row.outcome,
                    store.environment(row),
                    target=row.target,
                    state=row.state.value,
                    reliability=f"{row.failures}/{row.runs}" if row.runs else "",
                    bucket=row.bucket or "",
                    minimized="" if best == row.program else program_id(best),
                    shard=row.shard,
                    evaluated=row.evaluated,
                )
    for folder in bucket_folders(source.corpus):
        for case in case_folders(folder):
            if case.name == name:
                return _of_case(read_case(case), folder)
    raise UserError(mismatch(name, f"a failing program of {source.name}"))


def _of_case(case: Case, folder: Path) -> ProgramDetails:
    return _program(
        case.program,
        Outcome(status="failed", failure=case.failure),
        case.environment,
        target=case.environment.get("target", ""),
        reliability=f"{case.failures}/{case.runs}" if case.runs else "",
        bucket=folder.name.partition("-")[0],
    )


def _program(
    program: Program, outcome: Outcome, environment: Mapping[str, str], **more: object
) -> ProgramDetails:
    assert outcome.failure is not None
    phases = outcome.cost.phases
    words = ", ".join(f"{name} {took:.2f} s" for name, took in phases.items())
    return ProgramDetails(
        name=program_id(program),
        program=highlight.yaml(dump_program(program)),
        source=highlight.python(source_of(program)),
        outcome=outcome,
        failure=outcome.failure,
        wrong=what_is_wrong(outcome.failure),
        phases=plots.bars(phases, "seconds", f"Phases: {words}.") if phases else None,
        maps=maps(outcome.failure),
        environment=environment,
        **more,  # type: ignore[arg-type]
    )
