"""What is wrong, in sentences: a failure's words and numbers, for a person who has not seen it."""

from __future__ import annotations

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.generators.model.outcome import EAGER_REFUSES, Diff, Failure, FailureKind, said

FIRST_LINE = 400
"""Characters shown of a message."""


def what_is_wrong(failure: Failure) -> list[str]:
    """One sentence for each thing that is wrong with what was run."""
    told = [_disagreement(diff) for diff in failure.diffs]
    if failure.signal is not None:
        told.append(f"The process died of {failure.signal} in phase {failure.phase.value}.")
    if failure.kind is FailureKind.HANG:
        told.append(f"Phase {failure.phase.value} did not end before its deadline.")
    if failure.raised is not None:
        name = failure.raised.type.rpartition(".")[2]
        first = said(failure.raised.message).partition("\n")[0][:FIRST_LINE]
        where = f"{failure.layer.value}, in phase" if failure.layer else "phase"
        told.append(f"{name} is raised by {where} {failure.phase.value}: {first or 'no message'}")
    if EAGER_REFUSES in failure.evidence:
        told.append("Eager attention refuses the same call.")
    return told or [f"{failure.kind.value} in phase {failure.phase.value}"]


def _disagreement(diff: Diff) -> str:
    call = f" of call {diff.call}" if diff.call else ""
    if diff.what != "value":
        what = f"The {diff.what} of {diff.output}{call}"
        return f"{what} is {diff.actual}, where {diff.expected} is expected."
    told = f"{diff.output}{call} is {diff.actual}, where the float64 reference has {diff.expected}"
    if diff.error is None or not diff.budget:
        return f"{told}."
    ratio = diff.error / diff.budget
    times = f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
    return (
        f"{told}: off by {diff.error:.3g}, {times} times the {diff.budget:.3g} that rounding "
        f"explains{' there' if diff.block is not None else ''}."
    )


def why_one(bucket: Bucket) -> list[str]:
    """Why failures are counted as this bucket's: a sentence for each thing that they share."""
    if not bucket.needs_trigger:
        return [
            f"They share the key {bucket.strong}, which is made of the exception, its message "
            "without what varies, and the frames in torch: one cause."
        ]
    outputs = ", ".join(sorted(bucket.outputs)) or "none"
    return [
        f"They share the key {bucket.strong}. There is no stack in it, so several causes may "
        "have it; a failure belongs here only if the following holds too.",
        f"Its program has the whole trigger: {', '.join(sorted(bucket.trigger)) or 'nothing'}.",
        f"It has something of each sort: {', '.join(sorted(bucket.sorts)) or 'none'}.",
        f"One of these outputs is wrong: {outputs}.",
    ]


def shared_keys(bucket: Bucket, other: Bucket) -> list[str]:
    """The keys that make `other` a relation of `bucket`."""
    return sorted({bucket.strong, *bucket.aliases} & {other.strong, *other.aliases})
