"""From a campaign or a corpus on disk, and the beginning of a name, to the page of one bucket."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from corpus.bucket import Bucket, kin
from corpus.case import bucket_folder, read_bucket
from corpus.confirmation import read_confirmations
from corpus.store import DATABASE, FailureRow, Store
from fuzz.errors import UserError
from fuzz.findings import (
    CASES,
    KEPT,
    apart,
    bucket_folders,
    bucket_row,
    corpus_row,
    read_cases,
    smallest_script,
)
from fuzz.report import Row
from fuzz.report_bucket import Page
from generators.codec import program_id
from generators.outcome import Failure, Outcome
from generators.program import Program


def page(directory: Path, name: str) -> Page:
    """The page of the bucket whose id begins with `name`, in a campaign's directory or in a corpus;
    in a campaign also of a failure without a bucket, by its program's id. Raises UserError."""
    if (directory / DATABASE).is_file():
        with Store(directory, create=False) as store:
            return _campaign_page(store, directory, name)
    return _corpus_page(directory, name)


def _campaign_page(store: Store, directory: Path, name: str) -> Page:
    buckets = store.buckets()
    lonely = {row.id: row for row in apart(store)}
    wanted = _only(name, [*(bucket.id for bucket in buckets), *lonely], directory)
    if wanted in lonely:
        return _lonely_page(store, lonely[wanted])
    bucket = next(bucket for bucket in buckets if bucket.id == wanted)
    failures = store.failures(bucket=bucket.id)
    row = bucket_row(bucket, failures, store.occurrences().get(bucket.id, 0), directory)
    speaks = min(failures, key=lambda one: (one.state not in KEPT, one.number))
    program, failure = _best(speaks)
    folder = bucket_folder(directory / CASES, bucket)
    begun = store.campaign()
    return Page(
        row=row,
        program=program,
        failure=failure,
        repro=_text(smallest_script(folder)),
        environment=dict(begun.versions) if begun else {},
        bucket=bucket,
        variants=store.variants(speaks.program_id),
        kin=tuple(kin(bucket, buckets)),
        cases=tuple(str(path.parent) for path in sorted(folder.glob("[!.]*/program.yaml"))),
        confirmations=tuple(read_confirmations(folder / program_id(program))),
    )


def _lonely_page(store: Store, row: Row) -> Page:
    found = store.failure(row.id)
    assert found is not None
    program, failure = _best(found)
    begun = store.campaign()
    versions = dict(begun.versions) if begun else {}
    return Page(row=row, program=program, failure=failure, repro="", environment=versions)


def _corpus_page(corpus: Path, name: str) -> Page:
    folders = {read_bucket(folder).id: folder for folder in bucket_folders(corpus)}
    folder = folders[_only(name, folders, corpus)]
    bucket, cases = read_bucket(folder), read_cases(folder)
    if not cases:
        raise UserError(f"{folder}: expected a case of this bucket, found none")
    others: list[Bucket] = [read_bucket(other) for other in folders.values()]
    smallest = min(cases, key=lambda case: (len(case.repro.splitlines()), case.id))
    return Page(
        row=corpus_row(folder),
        program=smallest.program,
        failure=smallest.failure,
        repro=smallest.repro,
        environment=smallest.environment,
        bucket=bucket,
        kin=tuple(kin(bucket, others)),
        cases=tuple(str(folder / case.id) for case in cases),
        confirmations=tuple(read_confirmations(folder / smallest.id)),
    )


def _only(name: str, ids: Iterable[str], where: Path) -> str:
    """The one of `ids` that begins with `name`."""
    known = sorted(ids)
    found = [one for one in known if one == name] or [one for one in known if one.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not known:
        raise UserError(f"{where}: expected a campaign or a corpus with buckets, found none")
    if found:
        several = ", ".join(found)
        raise UserError(f"{name}: expected the beginning of one id, got that of {several}")
    raise UserError(f"{name}: expected a bucket of {where}, one of {', '.join(known)}")


def _best(row: FailureRow) -> tuple[Program, Failure]:
    program: Program = row.best or row.program
    outcome: Outcome = row.best_outcome or row.outcome
    assert outcome.failure is not None
    return program, outcome.failure


def _text(path: Path | None) -> str:
    return "" if path is None else path.read_text(encoding="utf-8", errors="replace")
