"""What the live view says of buckets, and of findings that have none yet."""

from __future__ import annotations

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.finding_stages import FindingStage
from attnfuzz.fuzz.campaign.findings_queue import FindingsQueue
from attnfuzz.fuzz.campaign.investigation import Investigation
from attnfuzz.fuzz.report.live import BucketView


def bucket_views(queue: FindingsQueue, store: Store) -> tuple[BucketView, ...]:
    """Buckets in the order they were found, then the findings on their way to one."""
    seen = store.occurrences()
    stages = {
        stage.investigation.bucket.id: stage
        for stage in queue.active
        if stage.investigation.bucket is not None
    }
    buckets = [
        BucketView(
            id=bucket.id,
            kind=bucket.kind,
            layer=bucket.layer,
            title=bucket.title,
            state=stages[bucket.id].name if bucket.id in stages else _ended(queue, bucket),
            fails=queue.reliability.get(bucket.id, "-"),
            seen=seen.get(bucket.id, 0),
            known_issue=bucket.known_issue,
        )
        for bucket in queue.buckets.buckets
        if bucket.id in seen or bucket.id in stages
    ]
    without = [stage for stage in queue.active if stage.investigation.bucket is None]
    return (*buckets, *map(_on_its_way, without))


def _ended(queue: FindingsQueue, bucket: Bucket) -> str:
    return "known" if bucket in queue.buckets.known else "done"


def _on_its_way(stage: FindingStage) -> BucketView:
    investigation = stage.investigation
    failure = investigation.failure
    return BucketView(
        id=investigation.id,
        kind=failure.kind.value,
        layer=failure.layer.value if failure.layer else None,
        title=signature(failure, investigation.finding.best).title,
        state=stage.name,
        fails=_fails(investigation),
        known_issue=investigation.known.id if investigation.known else None,
    )


def _fails(investigation: Investigation) -> str:
    finding = investigation.finding
    return f"{finding.failed}/{finding.runs}" if finding.runs else "-"
