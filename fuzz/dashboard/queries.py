"""What the pages list, read from a campaign or a corpus: buckets, failures, counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from attnfuzz.corpus.store import listing
from attnfuzz.corpus.store.listing import ShardTimes, Wanted
from attnfuzz.corpus.store.progress import Progress, progress_of
from attnfuzz.corpus.store.rows import CampaignRow, Totals
from attnfuzz.fuzz.dashboard.sources import Source
from attnfuzz.fuzz.report.campaign_rows import apart, rows, with_files
from attnfuzz.fuzz.report.findings import corpus_rows
from attnfuzz.fuzz.report.tables import Row, worst_first

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
        listed = rows(store, source.directory)
        others, left_out = apart(store, APART_SHOWN)
    return Found(rows=listed, apart=others, apart_left_out=left_out)


def shown(source: Source, some: Iterable[Row]) -> list[Row]:
    """`some` rows with what lies in files; of what cannot be read its own page complains."""
    return with_files(some, source.corpus, strict=False)


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
