"""What the pages list, read from a campaign or a corpus: buckets, failures, counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from attnfuzz.actors.targets.registry import DEFAULT
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.known_issues import thread_of
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store import listing
from attnfuzz.corpus.store.listing import Group, Listed, ShardTimes, Wanted
from attnfuzz.corpus.store.progress import Progress, progress_of
from attnfuzz.corpus.store.rows import CampaignRow, State, Totals
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.dashboard.sources import Source
from attnfuzz.fuzz.report.findings import corpus_rows, line_count, script_runs, smallest_script
from attnfuzz.fuzz.report.tables import Row, worst_first
from attnfuzz.generators.reading.files import ProgramError

APART_SHOWN = 200
"""Causes without a bucket that are listed."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The buckets of a source, worst first, and its failures without a bucket, one row for each key
    and whether they are flaky; `apart_left_out` of these are not listed."""

    rows: list[Row]
    apart: list[Row] = field(default_factory=list)
    apart_left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Night:
    """A campaign as a whole. `found_at` are the numbers of programs after which each bucket was
    first met, ascending; `known_at` the same of buckets that were known before."""

    campaign: CampaignRow | None
    totals: Totals
    shards: list[ShardTimes]
    progress: list[Progress]
    states: dict[str, int]
    found_at: list[int]
    known_at: list[int]


def found(source: Source) -> Found:
    """The buckets of `source`. Raises StoreError, CaseError or ProgramError."""
    return source.remember("found", partial(_found, source))


def _found(source: Source) -> Found:
    if not source.is_campaign:
        return Found(rows=worst_first(corpus_rows(source.directory)))
    with source.store() as store:
        buckets, groups = store.read(listing.buckets), store.read(listing.groups)
        of_bucket: dict[str | None, list[Group]] = defaultdict(list)
        for group in groups:
            of_bucket[group.bucket].append(group)
        first = {
            bucket.id: listing.speaks(of_bucket[bucket.id]).first
            for bucket in buckets
            if of_bucket[bucket.id]
        }
        speaking = {row.bucket: row for row in _numbered(store, first.values())}
        seen = _seen(buckets, of_bucket, store.totals())
        rows = [_row(one, speaking.get(one.id), seen[one.id]) for one in buckets]
        apart, left_out = _apart(store, of_bucket[None])
    return Found(rows=worst_first(rows), apart=worst_first(apart), apart_left_out=left_out)


def _numbered(store: Store, numbers: Collection[int]) -> list[Listed]:
    return store.read(partial(listing.listed, numbers=numbers))


def _seen(
    buckets: Sequence[Bucket], of_bucket: dict[str | None, list[Group]], totals: Totals
) -> dict[str, int]:
    """As `Store.occurrences`: a bucket's failures, and those of its key that were only counted."""
    recorded: dict[str, int] = defaultdict(int)
    owner: dict[str, str] = {}
    seen = dict.fromkeys((bucket.id for bucket in buckets), 0)
    for groups in of_bucket.values():
        for group in groups:
            recorded[group.strong] += group.from_shards
            if group.bucket in seen:
                seen[group.bucket] += group.from_shards
    first = {one.id: min((g.first for g in of_bucket[one.id]), default=1 << 60) for one in buckets}
    for bucket in sorted(buckets, key=lambda one: (first[one.id], one.id)):
        owner.setdefault(bucket.strong, bucket.id)
    for strong, count in totals.by_key.items():
        if strong in owner:
            seen[owner[strong]] += max(0, count - recorded[strong])
    return seen


def _row(bucket: Bucket, speaks: Listed | None, seen: int) -> Row:
    state = speaks.state if speaks else State.DONE
    return Row(
        id=bucket.id,
        kind=bucket.kind,
        layer=bucket.layer,
        title=bucket.title,
        state="known" if state is State.DUPLICATE else state.value,
        runs=speaks.runs if speaks else 0,
        failures=speaks.failures if speaks else 0,
        script_runs=script_runs(bucket),
        occurrences=seen,
        known_issue=bucket.known_issue,
        thread=thread_of(bucket.known_issue),
        target=speaks.target if speaks else DEFAULT,
    )


def _apart(store: Store, groups: Sequence[Group]) -> tuple[list[Row], int]:
    """A row for each key of failures without a bucket, and how many are left out."""
    keyed: dict[tuple[str, bool], list[Group]] = defaultdict(list)
    for group in groups:
        keyed[group.strong, group.state is State.FLAKY].append(group)
    some = sorted(keyed.values(), key=lambda of: min(one.first for one in of))
    rows = []
    for of in some[:APART_SHOWN]:
        (first,) = _numbered(store, [min(one.first for one in of)])
        whole = store.failure(first.program_id)
        assert whole is not None and whole.outcome.failure is not None
        failure = whole.outcome.failure
        rows.append(
            Row(
                id=first.program_id,
                kind=failure.kind.value,
                layer=failure.layer.value if failure.layer else None,
                title=signature(failure, whole.program).title,
                state=first.state.value,
                runs=first.runs,
                failures=first.failures,
                occurrences=sum(one.count for one in of),
                target=first.target,
            )
        )
    return rows, len(some) - len(rows)


def with_scripts(source: Source, rows: Sequence[Row]) -> list[Row]:
    """`rows` with the length of each bucket's script, where there is one."""
    return [replace(row, repro_lines=_lines(source, row)) for row in rows]


def _lines(source: Source, row: Row) -> int | None:
    if row.repro_lines is not None:
        return row.repro_lines
    folders = source.remember("folders", partial(_folders, source))
    folder = folders.get(row.id)
    if folder is None:
        return None
    try:
        script = smallest_script(source.corpus / folder)
    except ProgramError:
        return None  # its own page says what is wrong with it
    return None if script is None else line_count(script)


def _folders(source: Source) -> dict[str, str]:
    """The name of each bucket's folder by its id."""
    try:
        names = [one.name for one in source.corpus.iterdir()]
    except OSError:
        return {}
    return {name.partition("-")[0]: name for name in sorted(names, reverse=True)}


def failures(source: Source, wanted: Wanted, offset: int, limit: int) -> listing.Page:
    """A page of the failures of a campaign. Raises StoreError."""
    query = partial(listing.failures, wanted=wanted, offset=offset, limit=limit)

    def make() -> listing.Page:
        with source.store() as store:
            return store.read(query)

    return source.remember(("failures", wanted, offset, limit), make)


def night(source: Source) -> Night:
    """The campaign as a whole. Raises StoreError."""
    return source.remember("night", partial(_night, source))


def _night(source: Source) -> Night:
    known = {row.id for row in found(source).rows if row.state == "known"}
    with source.store() as store:
        times = store.read(listing.shards)
        first = store.read(listing.first_shards)
        states: dict[str, int] = defaultdict(int)
        for group in store.read(listing.groups):
            states[group.state.value] += group.count
        after, run = {}, 0
        for shard in times:
            run += shard.executed
            after[shard.index] = run
        met = {bucket: after[shard] for bucket, shard in first.items() if shard in after}
        return Night(
            campaign=store.campaign(),
            totals=store.totals(),
            shards=times,
            progress=store.read(progress_of),
            states=dict(sorted(states.items())),
            found_at=sorted(at for bucket, at in met.items() if bucket not in known),
            known_at=sorted(at for bucket, at in met.items() if bucket in known),
        )
