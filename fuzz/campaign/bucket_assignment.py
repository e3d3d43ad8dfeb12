"""Bucket assignment: which bucket a minimized finding belongs to, and by what flaky findings are
counted."""

from __future__ import annotations

from attnfuzz.actors.sandbox.job import launched_ranks_of
from attnfuzz.corpus.bucket import (
    Bucket,
    assign,
    coarse,
    merge_related,
    new_bucket,
    outputs_agree,
    wrong_outputs,
)
from attnfuzz.corpus.known_issues import KnownIssue, match
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.context import Context
from attnfuzz.fuzz.campaign.investigation import Investigation
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import FailureKind


def assign_bucket(investigation: Investigation, context: Context) -> tuple[Bucket, bool]:
    """The bucket of a minimized finding, with what the finding adds to it, and whether the finding
    is a duplicate there: it is known, the same program was kept already, or there are enough
    cases."""
    finding, buckets = investigation.finding, context.buckets
    program, failure = finding.best, finding.failure
    environment = context.environment_of(investigation.row)
    record = match(failure, program, environment, context.issues)
    bucket, is_new = bucket_for(finding, buckets, record)
    bucket = buckets.joined(bucket, failure, features(program))
    kept = bucket in buckets.known or program_id(program) in bucket.tried
    # Scripts of several processes cost more than all that was minimized, so one is enough.
    enough = 1 if launched_ranks_of(program) > 1 else context.config.max_cases_per_bucket
    return bucket, kept or (not is_new and context.cases_of(bucket) >= enough)


def bucket_for(
    finding: Finding, buckets: BucketIndex, record: KnownIssue | None
) -> tuple[Bucket, bool]:
    """The bucket of a minimized finding, and whether it is a new one, not among `buckets`; `record`
    labels it then."""
    program, failure = finding.best, finding.failure
    found, traits = signature(failure, program), features(program)
    outputs = wrong_outputs(finding.original_failure)
    there = merge_related(found, failure, traits, buckets.related(traits), outputs)
    if there is not None:
        return there, False
    fresh = new_bucket(
        found,
        failure,
        traits,
        known_issue=record.id if record else None,
        outputs=outputs,
        taken=[bucket.id for bucket in buckets.buckets],
    )
    for old in buckets.buckets:
        same = old.strong == fresh.strong or _are_numbers(old, fresh)
        alike = same and outputs_agree(old, failure)
        if alike and old not in buckets.known and assign(found, failure, old.trigger, [fresh]):
            # The old one's program was not minimal: had this come first, it would be of this.
            return old, False
    return fresh, True


def _are_numbers(old: Bucket, fresh: Bucket) -> bool:
    """Whether numbers are wrong in both, of one kernel and layer, NaN or not: where one of the
    inputs is NaN, so is what else is wrong."""
    kinds = {FailureKind.WRONG_RESULT.value, FailureKind.NONFINITE.value}
    return {old.kind, fresh.kind} <= kinds and old.aliases[:1] == fresh.aliases[:1]


def flaky_key(row: FailureRow) -> tuple[str, frozenset[str]]:
    """What flaky findings are counted by: the strong key, and where many causes share that, the
    sorts of things that the program has."""
    shared = signature(row.failure, row.program).needs_trigger
    return row.strong, coarse(features(row.program)) if shared else frozenset()
