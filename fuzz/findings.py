"""From what a campaign wrote down to the rows that a person is shown. Reads, never writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import RenderableType

from corpus.bucket import Bucket
from corpus.case import BUCKET, PROGRAM, Case, bucket_folder, read_bucket, read_case
from corpus.signature import signature
from corpus.store import FailureRow, State, Store
from fuzz import report
from fuzz.report import Row, Totals

CASES = "corpus"
KEPT = (State.DONE, State.MINIMIZED)


def totals(store: Store) -> Totals:
    """What the campaign has executed so far."""
    sums = store.totals()
    return Totals(shards=sums.shards, executed=sums.executed, by_status=sums.by_status)


def rows(store: Store, directory: Path) -> list[Row]:
    """A row for each bucket of the campaign in `directory`."""
    seen = store.occurrences()
    return [
        bucket_row(bucket, store.failures(bucket=bucket.id), seen.get(bucket.id, 0), directory)
        for bucket in store.buckets()
    ]


def bucket_row(
    bucket: Bucket, failures: Iterable[FailureRow], occurrences: int, directory: Path
) -> Row:
    """The row of `bucket`; of its `failures` the first that was minimized speaks for it."""
    speaks = min(failures, key=lambda row: (row.state not in KEPT, row.number), default=None)
    folder = bucket_folder(directory / CASES, bucket)
    script = smallest_script(folder)
    return Row(
        id=bucket.id,
        kind=bucket.kind,
        layer=bucket.layer,
        title=bucket.title,
        state=speaks.state.value if speaks else State.DONE.value,
        runs=speaks.runs if speaks else 0,
        failures=speaks.failures if speaks else 0,
        repro_lines=None if script is None else line_count(script),
        script_runs=script_runs(bucket),
        occurrences=occurrences,
        known_issue=bucket.known_issue,
        where=str(folder) if folder.is_dir() else None,
        target=speaks.target if speaks else "cpu",
    )


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
    return Row(
        id=first.program_id,
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
    """A row for each bucket of a corpus without a campaign's database, such as the shipped cases.
    Raises CaseError."""
    return [corpus_row(folder) for folder in bucket_folders(corpus)]


def bucket_folders(corpus: Path) -> list[Path]:
    """The folders in `corpus` that hold a bucket, sorted."""
    return sorted(path.parent for path in corpus.glob(f"*/{BUCKET}"))


def corpus_row(folder: Path) -> Row:
    """The row of the bucket in `folder`. Raises CaseError."""
    bucket, cases = read_bucket(folder), read_cases(folder)
    script = smallest_script(folder)
    return Row(
        id=bucket.id,
        kind=bucket.kind,
        layer=bucket.layer,
        title=bucket.title,
        state=State.DONE.value,
        runs=cases[0].runs if cases else 0,
        failures=cases[0].failures if cases else 0,
        repro_lines=None if script is None else line_count(script),
        script_runs=script_runs(bucket),
        occurrences=len(cases),
        known_issue=bucket.known_issue,
        where=str(folder),
        target=cases[0].environment.get("target", "cpu") if cases else "cpu",
    )


def read_cases(folder: Path) -> list[Case]:
    """The cases in a bucket's folder, sorted by their names. Raises CaseError."""
    return [read_case(path.parent) for path in sorted(folder.glob(f"[!.]*/{PROGRAM}"))]


def script_runs(bucket: Bucket) -> str | None:
    """How often a bucket's scripts failed by themselves in a clean process: "3/3"."""
    tried = list(bucket.notes.get("repro", {}).values())
    if not tried:
        return None
    best = max(tried, key=lambda one: (one["reproduced"], -one["runs"]))
    return f"{best['reproduced']}/{best['runs']}"


def smallest_script(folder: Path) -> Path | None:
    """The shortest `repro.py` among the cases in a bucket's folder."""
    return min(sorted(folder.glob("*/repro.py")), key=line_count, default=None)


def line_count(path: Path) -> int:
    """Lines of a text file."""
    return len(path.read_text(encoding="utf-8", errors="replace").splitlines())


def campaign_table(store: Store, directory: Path) -> RenderableType:
    """What the campaign in `directory` found, and where it lies."""
    return report.triage(totals(store), rows(store, directory), apart(store), str(directory))


def campaign_json(store: Store, directory: Path) -> dict[str, object]:
    """The same as data."""
    return report.triage_json(totals(store), rows(store, directory), apart(store), str(directory))
