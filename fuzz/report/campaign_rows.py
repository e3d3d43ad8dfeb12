"""The rows of a campaign: what `triage` and the pages list. They are read from what the database
keeps for lists, and of programs only those are read that have no bucket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import SHIPPED
from attnfuzz.corpus.decisions.status import CAME_BACK
from attnfuzz.corpus.known_before import read_known_before
from attnfuzz.corpus.known_issues import known_as, thread_of
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store import listing
from attnfuzz.corpus.store.listing import Group, Overview
from attnfuzz.corpus.store.machine_deaths import machine_deaths
from attnfuzz.corpus.store.rows import ENDS, State
from attnfuzz.corpus.store.severities import Scored, severities
from attnfuzz.corpus.store.store import FailureRow, Store
from attnfuzz.fuzz.reduce.variants import BASELINE, PASSES
from attnfuzz.fuzz.report.scripts import line_count, script_runs, smallest_script
from attnfuzz.fuzz.report.tables import Row, worst_first
from attnfuzz.generators.reading.files import ProgramError

CASES = "corpus"


def rows(store: Store, directory: Path) -> list[Row]:
    """A row for each bucket of the campaign in `directory`, worst first; what lies in files,
    `with_files` adds. Raises StoreError and CaseError."""
    before, overview = read_known_before(directory), store.read(listing.overview)
    back = before.would_come_back if before else {}
    seen = overview.counted.occurrences(store.totals().by_key)
    passing = store.with_variant(BASELINE, PASSES)
    found = [
        _row(bucket, overview, seen.get(bucket.id, 0), passing)
        for bucket in overview.counted.buckets
    ]
    return worst_first(
        replace(row, state=CAME_BACK) if known_as(row.known_issue) in back else row for row in found
    )


def _row(bucket: Bucket, overview: Overview, seen: int, passing: set[str]) -> Row:
    """A bucket all of whose failures are another's duplicates is one that was known before. It is a
    regression where the program that speaks for it passes with the baseline."""
    speaks = overview.speaking.get(bucket.id)
    bad = overview.severity.get(bucket.id, Scored())
    state = speaks.state if speaks else State.DONE
    return Row(
        id=bucket.id,
        kind=bucket.kind,
        layer=bucket.layer,
        title=bucket.title,
        severity=bad.score,
        strangeness=bad.strangeness,
        state="known" if state is State.DUPLICATE else state.value,
        runs=speaks.runs if speaks else 0,
        failures=speaks.failures if speaks else 0,
        script_runs=script_runs(bucket),
        occurrences=seen,
        known_issue=bucket.known_issue,
        thread=thread_of(bucket.known_issue),
        target=speaks.target if speaks else DEFAULT,
        regression=speaks is not None and speaks.program_id in passing,
    )


def apart(store: Store, most: int | None = None) -> tuple[list[Row], int]:
    """A row for each strong key that has failures without a bucket, worst first: flaky ones and
    those set aside, which are kept apart, and those with which something is left to do. At most
    `most`, the worst, and how many are left out. Raises StoreError."""
    keyed: dict[tuple[str, State | None], list[Group]] = defaultdict(list)
    for group in store.read(listing.counted).groups.get(None, []):
        keyed[group.strong, group.state if group.state in ENDS else None].append(group)
    firsts = {min(group.first for group in of): of for of in keyed.values()}
    bad = store.read(partial(severities, numbers=firsts))
    some = sorted(firsts, key=lambda number: (bad[number].rank, number))[:most]
    died = store.read(machine_deaths)
    found = [
        _apart_row(row, firsts[row.number], bad[row.number], died.get(row.program_id, ()))
        for row in store.numbered(some)
    ]
    return worst_first(found), len(firsts) - len(found)


def _apart_row(first: FailureRow, of: Sequence[Group], bad: Scored, machines: Sequence[str]) -> Row:
    failure = first.outcome.failure
    assert failure is not None
    aside = first.state is State.SET_ASIDE
    return Row(
        id=first.program_id,
        severity=bad.score,
        strangeness=bad.strangeness,
        kind=failure.kind.value,
        layer=failure.layer.value if failure.layer else None,
        title=_of_machines(machines) if aside else signature(failure, first.program).title,
        state=first.state.value,
        runs=first.runs,
        failures=first.failures,
        occurrences=sum(group.count for group in of),
        target=first.target,
    )


def _of_machines(machines: Sequence[str]) -> str:
    """What is known of a program that is not run any more: it is about machines first."""
    return f"{len(machines)} machines died while it ran: {', '.join(machines)}"


def with_files(some: Iterable[Row], corpus: Path, *, strict: bool = True) -> list[Row]:
    """`some` rows with the length of each bucket's script and its folder, in `corpus` or among what
    is shipped, where these are there. Raises ProgramError, but unless it is `strict` for a script
    that cannot be read."""
    own, shipped = _by_id(corpus), _by_id(SHIPPED)
    return [_with_files(row, own.get(row.id), shipped.get(row.id), strict) for row in some]


def _with_files(row: Row, folder: Path | None, shipped: Path | None, strict: bool) -> Row:
    there = folder or shipped
    where = str(there) if there is not None else row.where
    try:
        script = smallest_script(folder) if folder is not None else None
    except ProgramError:
        if strict:
            raise
        script = None
    lines = row.repro_lines if script is None else line_count(script)
    return replace(row, where=where, repro_lines=lines)


def _by_id(corpus: Path) -> dict[str, Path]:
    """The folder of each bucket by its id."""
    try:
        found = sorted(corpus.iterdir(), reverse=True)
    except OSError:
        return {}
    return {folder.name.partition("-")[0]: folder for folder in found if folder.is_dir()}
