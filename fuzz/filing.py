"""Where a finding is filed: its bucket when it is minimized, its count when it is flaky."""

from __future__ import annotations

from collections.abc import Sequence

from corpus.bucket import (
    Bucket,
    assign,
    coarse,
    merge_kin,
    new_bucket,
    outputs_agree,
    wrong_outputs,
)
from corpus.known_issues import KnownIssue
from corpus.signature import signature
from corpus.store import FailureRow
from fuzz.investigate import Investigation
from generators.features import features


def bucket_for(
    investigation: Investigation, buckets: Sequence[Bucket], known: KnownIssue | None
) -> tuple[Bucket, bool]:
    """The bucket of a minimized failure, and whether it is a new one, not of `buckets`; `known` is
    the record that labels it then."""
    program, failure = investigation.best, investigation.failure
    found, traits = signature(failure, program), features(program)
    there = merge_kin(found, failure, traits, buckets)
    if there is not None:
        return there, False
    original = investigation.row.outcome.failure
    fresh = new_bucket(
        found,
        failure,
        traits,
        known_issue=known.id if known else None,
        outputs=wrong_outputs(original) if original else (),
        taken=[bucket.id for bucket in buckets],
    )
    for old in buckets:
        alike = old.strong == fresh.strong and outputs_agree(old, failure)
        if alike and assign(found, failure, old.trigger, [fresh]):
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
