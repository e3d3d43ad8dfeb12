"""When a campaign against a planted fault ends early."""

from __future__ import annotations

import pytest

from attnfuzz.fuzz import bench
from attnfuzz.fuzz.report.live import BucketView, Snapshot


def snapshot(pending: int = 0, known_issue: str | None = None) -> Snapshot:
    found = BucketView(
        id="b", kind="wrong_result", layer=None, title="", state="done", known_issue=known_issue
    )
    return Snapshot(
        elapsed_s=8.0, left_s=0.0, executed=1, passed=0, rejected=0, failed=1, shards=1, rate=1.0,
        workers=2, busy=0, cpu=0.0, doing="", pending=pending, buckets=(found,),
    )  # fmt: skip


def test_what_is_new_and_done_ends_it() -> None:
    watch = bench._Watch(2, early=True, settled=())
    watch(snapshot(pending=1))
    with pytest.raises(bench._Enough):
        watch(snapshot())
    assert watch.first == {"b": 16.0}


def test_what_is_known_or_was_settled_does_not() -> None:
    bench._Watch(2, early=True, settled=())(snapshot(known_issue="pytorch-1"))
    bench._Watch(2, early=True, settled=("b",))(snapshot())
    bench._Watch(2, early=False, settled=())(snapshot())
