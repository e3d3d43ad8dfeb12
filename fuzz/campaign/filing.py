"""Where a finding is filed: its bucket when it is minimized, its count when it is flaky."""

from __future__ import annotations

from attnfuzz.corpus.bucket import (
    Bucket,
    assign,
    coarse,
    merge_kin,
    new_bucket,
    outputs_agree,
    wrong_outputs,
)
from attnfuzz.corpus.known_issues import KnownIssue
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow
from attnfuzz.fuzz.campaign.investigate import Investigation
from attnfuzz.fuzz.campaign.shelf import Shelf
from attnfuzz.generators.model.features import features


def bucket_for(
    investigation: Investigation, shelf: Shelf, record: KnownIssue | None
) -> tuple[Bucket, bool]:
    """The bucket of a minimized failure, and whether it is a new one, not on the `shelf`; `record`
    labels it then."""
    program, failure = investigation.best, investigation.failure
    found, traits = signature(failure, program), features(program)
    there = merge_kin(found, failure, traits, shelf.buckets)
    if there is not None:
        return there, False
    original = investigation.row.outcome.failure
    fresh = new_bucket(
        found,
        failure,
        traits,
        known_issue=record.id if record else None,
        outputs=wrong_outputs(original) if original else (),
        taken=[bucket.id for bucket in shelf.buckets],
    )
    for old in shelf.buckets:
        alike = old.strong == fresh.strong and outputs_agree(old, failure)
        if alike and old not in shelf.known and assign(found, failure, old.trigger, [fresh]):
            # The old one's program was not minimal: had this come first, it would be of this.
            return old, False
    return fresh, True


def flaky_key(row: FailureRow) -> tuple[str, frozenset[str]]:
    """What flaky findings are counted by: the strong key, and where many causes share that, the
    sorts of things that the program has."""
    failure = row.outcome.failure
    assert failure is not None
    shared = signature(failure, row.program).needs_trigger
    return row.strong, coarse(features(row.program)) if shared else frozenset()
