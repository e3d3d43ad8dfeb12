"""From what a campaign wrote down to the rows that a person is shown. Reads, never writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from attnfuzz.actors.targets.registry import DEFAULT
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import (
    BUCKET,
    REPRO,
    SHIPPED,
    Case,
    bucket_folder,
    case_folders,
    read_bucket,
    read_case,
)
from attnfuzz.corpus.decisions.merging import standings
from attnfuzz.corpus.decisions.status import CAME_BACK, Status, status
from attnfuzz.corpus.known_before import read_known_before
from attnfuzz.corpus.known_issues import known_as, thread_of
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow, State, Store
from attnfuzz.fuzz.reduce.variants import BASELINE, PASSES
from attnfuzz.fuzz.report import tables as report
from attnfuzz.fuzz.report.escape import plain
from attnfuzz.fuzz.report.severity import severity
from attnfuzz.fuzz.report.since import since
from attnfuzz.fuzz.report.tables import Row, Totals
from attnfuzz.generators.model.outcome import Failure, Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.files import folders, is_there, read_inside

CASES = "corpus"
KEPT = (State.DONE, State.MINIMIZED)


def totals(store: Store) -> Totals:
    """What the campaign has executed so far."""
    sums = store.totals()
    return Totals(
        shards=sums.shards,
        executed=sums.executed,
        by_status=sums.by_status,
        cpu=sums.cpu,
        attributed=sum(sums.attributed.values()),
        attributed_checked=sums.attributed_checked,
        attributed_wrong=sorted(sums.attributed_wrong),
    )


def rows(store: Store, directory: Path) -> list[Row]:
    """A row for each bucket of the campaign in `directory`. Raises CaseError."""
    seen, before = store.occurrences(), read_known_before(directory)
    back = before.would_come_back if before else {}
    regressed = store.with_variant(BASELINE, PASSES)
    found = [
        bucket_row(
            bucket, store.failures(bucket=bucket.id), seen.get(bucket.id, 0), directory, regressed
        )
        for bucket in store.buckets()
    ]
    return [
        replace(row, state=CAME_BACK) if known_as(row.known_issue) in back else row for row in found
    ]


def bucket_row(
    bucket: Bucket,
    failures: Iterable[FailureRow],
    occurrences: int,
    directory: Path,
    since: Collection[str] = (),
) -> Row:
    """The row of `bucket`; of its `failures` the first that was minimized speaks for it. It is a
    regression where that is one of the programs `since`, which pass with the baseline."""
    speaks = min(failures, key=lambda row: (row.state not in KEPT, row.number), default=None)
    folder = bucket_folder(directory / CASES, bucket)
    script = smallest_script(folder)
    program, failure = simplest(speaks) if speaks else (None, None)
    bad = severity(failure, program) if program and failure else None
    return Row(
        id=bucket.id,
        kind=bucket.kind,
        layer=bucket.layer,
        title=bucket.title,
        severity=bad.score if bad else 0,
        strangeness=bad.strangeness if bad else 0,
        state=_state(speaks),
        runs=speaks.runs if speaks else 0,
        failures=speaks.failures if speaks else 0,
        repro_lines=None if script is None else line_count(script),
        script_runs=None if script is None else script_runs(bucket),
        occurrences=occurrences,
        known_issue=bucket.known_issue,
        thread=thread_of(bucket.known_issue),
        where=_where(bucket, folder),
        target=speaks.target if speaks else DEFAULT,
        regression=speaks is not None and speaks.program_id in since,
    )


def simplest(row: FailureRow) -> tuple[Program, Failure]:
    """The simplest program so far that fails like the row's, and its failure."""
    outcome: Outcome = row.best_outcome or row.outcome
    assert outcome.failure is not None
    return row.best or row.program, outcome.failure


def _where(bucket: Bucket, folder: Path) -> str | None:
    """The bucket's folder: of the campaign, or of what is shipped."""
    shipped = SHIPPED / bucket_folder(SHIPPED, bucket).name
    return next((str(one) for one in (folder, shipped) if one.is_dir()), None)


def _state(speaks: FailureRow | None) -> str:
    """A bucket all of whose failures are another's duplicates is one that was known before."""
    if speaks is None:
        return State.DONE.value
    return "known" if speaks.state is State.DUPLICATE else speaks.state.value


def apart(store: Store) -> list[Row]:
    """A row for each strong key that has failures without a bucket: flaky ones, which are kept
    apart, and those with which something is left to do."""
    groups: dict[tuple[str, bool], list[FailureRow]] = {}
    for row in store.failures():
        if row.bucket is None:
            groups.setdefault((row.strong, row.state is State.FLAKY), []).append(row)
    return [_apart_row(group) for group in groups.values()]


def _apart_row(group: list[FailureRow]) -> Row:
    first = group[0]
    failure = first.outcome.failure
    assert failure is not None
    bad = severity(failure, first.program)
    return Row(
        id=first.program_id,
        severity=bad.score,
        strangeness=bad.strangeness,
        kind=failure.kind.value,
        layer=failure.layer.value if failure.layer else None,
        title=signature(failure, first.program).title,
        state=first.state.value,
        runs=first.runs,
        failures=first.failures,
        occurrences=len(group),
        target=first.target,
    )


def corpus_rows(corpus: Path) -> list[Row]:
    """A row for each bucket of a corpus without a campaign's database, such as the shipped cases;
    what is merged into another is counted there. Raises CaseError."""
    stand = standings(corpus, date.today())
    stays = {one.folder: stand[one.stays].folder for one in stand.values()}
    found = {folder: corpus_row(folder) for folder in bucket_folders(corpus)}
    for folder in [one for one in found if stays.get(one, one) != one]:
        part, whole = found.pop(folder), stays[folder]
        cases = found[whole].occurrences + part.occurrences
        found[whole] = replace(found[whole], occurrences=cases)
    return [*found.values()]


def bucket_folders(corpus: Path) -> list[Path]:
    """The folders in `corpus` that hold a bucket, sorted."""
    if not corpus.is_dir():
        return []
    return [folder for folder in folders(corpus) if is_there(folder / BUCKET)]


def corpus_row(folder: Path) -> Row:
    """The row of the bucket in `folder`. Raises CaseError."""
    bucket, cases = read_bucket(folder), read_cases(folder)
    script, stands = smallest_script(folder), status(folder, date.today())
    worst = max(
        (severity(case.failure, case.program) for case in cases),
        key=lambda one: (one.score, -one.strangeness),
        default=None,
    )
    return Row(
        id=bucket.id,
        kind=bucket.kind,
        layer=bucket.layer,
        title=bucket.title,
        severity=worst.score if worst else 0,
        strangeness=worst.strangeness if worst else 0,
        state=stands.went or stands.kind or State.DONE.value,
        runs=cases[0].runs if cases else 0,
        failures=cases[0].failures if cases else 0,
        repro_lines=None if script is None else line_count(script),
        script_runs=script_runs(bucket),
        occurrences=len(cases),
        known_issue=_label(stands, bucket),
        thread=thread_of(bucket.known_issue),
        where=str(folder),
        target=cases[0].environment.get("target", DEFAULT) if cases else DEFAULT,
    )


def _label(stands: Status, bucket: Bucket) -> str | None:
    """As what a bucket of a corpus is known: what was decided, and the record of a known issue."""
    merged = f"merged into {stands.merged_into}" if stands.merged_into else ""
    return ", ".join(filter(None, (merged, stands.label, bucket.known_issue))) or None


def read_cases(folder: Path) -> list[Case]:
    """The cases in a bucket's folder, sorted by their names. Raises CaseError."""
    return [read_case(case) for case in case_folders(folder)]


def script_runs(bucket: Bucket) -> str | None:
    """How often a bucket's scripts failed by themselves in a clean process: "3/3"."""
    tried = list(bucket.tried.values())
    if not tried:
        return None
    best = max(tried, key=lambda one: (one.reproduced, -one.runs))
    return f"{best.reproduced}/{best.runs}"


def smallest_script(folder: Path) -> str | None:
    """The text of the shortest `repro.py` among the cases in a bucket's folder. Raises
    ProgramError."""
    cases = [case for case in case_folders(folder) if is_there(case / REPRO)]
    return min((read_inside(case, REPRO) for case in cases), key=line_count, default=None)


def line_count(text: str) -> int:
    """Lines of a text."""
    return len(text.splitlines())


def campaign_table(store: Store, directory: Path) -> RenderableType:
    """What the campaign in `directory` found, what is new since last night, and where it lies."""
    found = rows(store, directory)
    table = report.triage(totals(store), found, apart(store), str(directory))
    said = since(found, read_known_before(directory))
    return Group(table, "", Text(plain("\n".join(said.lines())))) if said else table


def worst(store: Store, directory: Path) -> str | None:
    """The id of the first in the table: of a bucket, or of a failure that has none."""
    ordered = report.worst_first(rows(store, directory)) or report.worst_first(apart(store))
    return ordered[0].id if ordered else None


def campaign_json(store: Store, directory: Path) -> dict[str, object]:
    """The same as data."""
    found = rows(store, directory)
    data = report.triage_json(totals(store), found, apart(store), str(directory))
    said = since(found, read_known_before(directory))
    return data | ({"since": asdict(said)} if said else {})
