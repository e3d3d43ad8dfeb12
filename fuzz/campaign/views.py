"""What the live view says of buckets, and of findings that have none yet."""

from __future__ import annotations

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.desk import Desk
from attnfuzz.fuzz.campaign.investigate import Investigation
from attnfuzz.fuzz.report.live import BucketView


def bucket_views(desk: Desk, store: Store) -> tuple[BucketView, ...]:
    """Buckets in the order they were found, then the findings on their way to one."""
    seen = store.occurrences()
    stages = {i.bucket.id: i for i in desk.active if i.bucket is not None}
    buckets = [
        BucketView(
            id=bucket.id,
            kind=bucket.kind,
            layer=bucket.layer,
            title=bucket.title,
            state=stages[bucket.id].stage.name if bucket.id in stages else _ended(desk, bucket),
            fails=desk.reliability.get(bucket.id, "-"),
            seen=seen.get(bucket.id, 0),
            known_issue=bucket.known_issue,
        )
        for bucket in desk.shelf.buckets
        if bucket.id in seen or bucket.id in stages
    ]
    return (*buckets, *(_on_its_way(i) for i in desk.active if i.bucket is None))


def _ended(desk: Desk, bucket: Bucket) -> str:
    return "known" if bucket in desk.shelf.known else "done"


def _on_its_way(investigation: Investigation) -> BucketView:
    failure = investigation.failure
    return BucketView(
        id=investigation.id,
        kind=failure.kind.value,
        layer=failure.layer.value if failure.layer else None,
        title=signature(failure, investigation.best).title,
        state=investigation.stage.name,
        fails=_fails(investigation),
        known_issue=investigation.known.id if investigation.known else None,
    )


def _fails(investigation: Investigation) -> str:
    return f"{investigation.failed}/{investigation.runs}" if investigation.runs else "-"
