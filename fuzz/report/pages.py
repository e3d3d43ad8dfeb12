"""From a campaign or a corpus on disk, and the beginning of a name, to the page of one bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.bucket import Bucket, related
from attnfuzz.corpus.case import Case, bucket_folder, read_bucket
from attnfuzz.corpus.confirmation import read_confirmations
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.severity import severity
from attnfuzz.corpus.store.rows import KEPT
from attnfuzz.corpus.store.store import DATABASE, FailureRow, Store
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.report.bucket import Page
from attnfuzz.fuzz.report.campaign_rows import CASES, apart, rows, with_files
from attnfuzz.fuzz.report.findings import bucket_folders, corpus_row, read_cases
from attnfuzz.fuzz.report.releases import releases
from attnfuzz.fuzz.report.tables import Row
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import is_there


def page(directory: Path, name: str, listed: Sequence[Row] | None = None) -> Page:
    """The page of the bucket whose id begins with `name`, in a campaign's directory or in a corpus;
    in a campaign also of a failure without a bucket, by its program's id. `listed` are the rows of
    the campaign, where they are at hand. Raises UserError."""
    if is_there(directory / DATABASE):
        with Store(directory, create=False) as store:
            return _campaign_page(store, directory, name, listed)
    return _corpus_page(directory, name)


def bucket_folder_of(directory: Path, name: str) -> Path:
    """The folder of the bucket whose id begins with `name`, in a corpus or in a campaign's
    directory. Raises UserError."""
    is_campaign = is_there(directory / DATABASE)
    folders = _by_id(directory / CASES if is_campaign else directory)
    return folders[_only(name, folders, directory)]


def _by_id(corpus: Path) -> dict[str, Path]:
    return {read_bucket(folder).id: folder for folder in bucket_folders(corpus)}


def _campaign_page(store: Store, directory: Path, name: str, listed: Sequence[Row] | None) -> Page:
    buckets = store.buckets()
    ids = [bucket.id for bucket in buckets]
    is_bucket = any(one.startswith(name) for one in ids)
    unbucketed = {} if is_bucket else {row.id: row for row in apart(store)[0]}
    wanted = _only(name, [*ids, *unbucketed], directory)
    if wanted in unbucketed:
        found = store.failure(wanted)
        assert found is not None
        return _page_without_case(store, unbucketed[wanted], found)
    bucket = next(bucket for bucket in buckets if bucket.id == wanted)
    known = {row.id: row for row in listed or ()}
    row = known.get(wanted) or next(r for r in rows(store, directory) if r.id == wanted)
    (row,) = with_files([row], directory / CASES)
    others = tuple(related(bucket, buckets))
    folder = bucket_folder(directory / CASES, bucket)
    cases = read_cases(folder)
    if cases:
        page = _page_of(row, bucket, cases, folder, others)
        original = min(cases, key=_worst).original
        return replace(page, variants=page.variants or store.variants(original))
    failures = store.failures(bucket=bucket.id)
    if not failures:
        raise UserError(mismatch(f"{store.path}: failures", f"one of bucket {wanted}", "none"))
    speaks = min(failures, key=lambda one: (one.state not in KEPT, one.number))
    variants = store.variants(speaks.program_id)
    return replace(
        _page_without_case(store, row, speaks), bucket=bucket, variants=variants, related=others
    )


def _page_without_case(store: Store, row: Row, found: FailureRow) -> Page:
    """The page of a failure that has no case yet."""
    program, failure = found.simplest
    environment = store.environment(found)
    if found.target in TARGETS:  # another version's may have targets that this one has not
        environment = TARGETS[found.target].environment(environment)
    return Page(row=row, program=program, failure=failure, repro="", environment=environment)


def _page_of(
    row: Row, bucket: Bucket, cases: Sequence[Case], folder: Path, others: tuple[Bucket, ...]
) -> Page:
    """The page of a bucket with cases: it shows the worst one, of those the shortest
    script's."""
    case, events = min(cases, key=_worst), tuple(history(folder))
    target = case.environment.get("target", row.target)
    return Page(
        row=replace(row, runs=case.runs, failures=case.failures, target=target),
        program=case.program,
        failure=case.failure,
        repro=case.repro,
        environment=case.environment,
        bucket=bucket,
        variants=case.variants,
        related=others,
        cases=tuple(str(folder / one.id) for one in cases),
        confirmations=tuple(read_confirmations(folder / case.id)),
        preload=tuple(one.name for one in case.preload),
        history=events,
        releases=tuple(releases(cases, events)),
    )


def page_of_case(folder: Path, case: Case) -> Page:
    """The page of the bucket in `folder`, in a corpus, as if `case` were the only one of its."""
    return _page_of(corpus_row(folder), read_bucket(folder), [case], folder, ())


def _worst(case: Case) -> tuple[int, int, int, str]:
    bad = severity(case.failure, case.program)
    return -bad.score, bad.strangeness, len(case.repro.splitlines()), case.id


def _corpus_page(corpus: Path, name: str) -> Page:
    folders = _by_id(corpus)
    folder = folders[_only(name, folders, corpus)]
    bucket, cases = read_bucket(folder), read_cases(folder)
    if not cases:
        raise UserError(mismatch(folder, "a case of this bucket", "none"))
    others: list[Bucket] = [read_bucket(other) for other in folders.values()]
    return _page_of(corpus_row(folder), bucket, cases, folder, tuple(related(bucket, others)))


def _only(name: str, ids: Iterable[str], where: Path) -> str:
    """The one of `ids` that begins with `name`."""
    known = sorted(ids)
    found = [one for one in known if one == name] or [one for one in known if one.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not known:
        raise UserError(mismatch(where, "a campaign or a corpus with buckets", "none"))
    if found:
        several = ", ".join(found)
        raise UserError(mismatch(name, "the beginning of one id", f"that of {several}"))
    raise UserError(mismatch(name, f"a bucket of {where}, one of {', '.join(known)}"))
