"""From what a campaign wrote down to the rows that a person is shown. Reads, never writes."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import (
    BUCKET,
    Case,
    case_folders,
    read_bucket,
    read_case,
)
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.decisions.merging import standings
from attnfuzz.corpus.decisions.status import Status, status_of
from attnfuzz.corpus.known_before import read_known_before
from attnfuzz.corpus.known_issues import thread_of
from attnfuzz.corpus.retried import read_retried
from attnfuzz.corpus.severity import severity
from attnfuzz.corpus.store.store import State, Store
from attnfuzz.fuzz.report import tables as report
from attnfuzz.fuzz.report.campaign_rows import CASES, apart, rows, with_files
from attnfuzz.fuzz.report.escape import plain
from attnfuzz.fuzz.report.scripts import line_count, script_runs, smallest_script
from attnfuzz.fuzz.report.since import since
from attnfuzz.fuzz.report.tables import Row, Totals
from attnfuzz.generators.reading.files import folders, is_there


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
        longest=sums.longest,
        outliers=sums.outliers,
        predicted=(sums.predicted_cpu_s, sums.cpu_s),
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
    script, events = smallest_script(folder), history(folder)
    stands = status_of(events, date.today())
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
        decision="expired" if stands.expired else stands.kind,
        last_event=str(events[-1]) if events else None,
        target=cases[0].environment.get("target", DEFAULT) if cases else DEFAULT,
    )


def _label(stands: Status, bucket: Bucket) -> str | None:
    """As what a bucket of a corpus is known: what was decided, and the record of a known issue."""
    merged = f"merged into {stands.merged_into}" if stands.merged_into else ""
    return ", ".join(filter(None, (merged, stands.label, bucket.known_issue))) or None


def read_cases(folder: Path) -> list[Case]:
    """The cases in a bucket's folder, sorted by their names. Raises CaseError."""
    return [read_case(case) for case in case_folders(folder)]


def campaign_table(store: Store, directory: Path) -> RenderableType:
    """What the campaign in `directory` found, what is new since last night, and where it lies."""
    found, others = _whole(store, directory)
    table = report.triage(totals(store), found, others, str(directory))
    said = since(found, read_known_before(directory), read_retried(directory))
    return Group(table, "", Text(plain("\n".join(said.lines())))) if said else table


def worst(store: Store, directory: Path) -> str | None:
    """The id of the first in the table: of a bucket, or of a failure that has none."""
    ordered = rows(store, directory) or apart(store)[0]
    return ordered[0].id if ordered else None


def _whole(store: Store, directory: Path) -> tuple[list[Row], list[Row]]:
    return with_files(rows(store, directory), directory / CASES), apart(store)[0]


def campaign_json(store: Store, directory: Path) -> dict[str, object]:
    """The same as data."""
    found, others = _whole(store, directory)
    data = report.triage_json(totals(store), found, others, str(directory))
    said = since(found, read_known_before(directory), read_retried(directory))
    return data | ({"since": asdict(said)} if said else {})
