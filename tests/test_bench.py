"""When a campaign against a planted fault ends early."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfuzz.actors.oracles import metadata
from attnfuzz.fuzz import bench
from attnfuzz.fuzz.report.live import BucketView, Snapshot
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Outcome, Phase


def snapshot(pending: int = 0, pending_known: int = 0, known_issue: str | None = None) -> Snapshot:
    found = BucketView(
        id="b", kind="wrong_result", layer=None, title="", state="done", known_issue=known_issue
    )
    return Snapshot(
        elapsed_s=8.0, left_s=0.0, executed=1, passed=0, rejected=0, failed=1, shards=1, rate=1.0,
        workers=2, busy=0, cpu=0.0, doing="", pending=pending,
        pending_known=pending_known, buckets=(found,),
    )  # fmt: skip


def test_what_is_new_and_done_ends_it() -> None:
    watch = bench._Watch(2, early=True, settled=())
    watch(snapshot(pending=2, pending_known=1))
    with pytest.raises(bench._Enough):
        watch(snapshot(pending=1, pending_known=1))
    assert watch.first == {"b": 16.0}


def test_what_is_known_or_was_settled_does_not() -> None:
    bench._Watch(2, early=True, settled=())(snapshot(known_issue="pytorch-1"))
    bench._Watch(2, early=True, settled=("b",))(snapshot())
    bench._Watch(2, early=False, settled=())(snapshot())


def failed(kind: FailureKind, *what: str) -> Failure:
    diffs = tuple(Diff(output="out", what=one, expected="1", actual="2") for one in what)
    return Failure(kind=kind, phase=Phase.CHECK, oracle="any", diffs=diffs)


@pytest.mark.parametrize(
    ("before", "there", "right"),
    [
        (FailureKind.WRONG_RESULT, ("stride",), True),
        (FailureKind.NONFINITE, ("stride", "aliases"), True),
        (FailureKind.WRONG_RESULT, ("shape", "stride"), False),
        (FailureKind.METADATA_MISMATCH, ("stride",), False),
    ],
)
def test_numbers_are_right_where_the_layout_alone_differs(
    before: FailureKind, there: tuple[str, ...], right: bool
) -> None:
    outcome = Outcome(status="failed", failure=failed(before, "value"))
    row = SimpleNamespace(best_outcome=outcome)
    found = failed(FailureKind.METADATA_MISMATCH, *there)
    assert bench.numbers_are_right(row, found) is right  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known_issue", "clean", "own"),
    [
        (None, {"key", "other"}, True),
        (None, {"other"}, False),
        (None, {"other", "numbers-1"}, True),
        (None, {"other", "kernel-1"}, False),
        ("pytorch-1", {"other"}, True),
        ("pytorch-1", set(), False),
    ],
)
def test_what_unbroken_torch_does_too_is_its_own(
    known_issue: str | None, clean: set[str], own: bool
) -> None:
    aliases = ("numbers-1", "kernel-1")
    bucket = SimpleNamespace(strong="key", known_issue=known_issue, aliases=aliases)
    assert bench.is_torchs_own(bucket, clean) is own  # type: ignore[arg-type]


def test_layouts_are_those_that_are_judged_last() -> None:
    assert bench.LAYOUT == metadata.LAYOUT
