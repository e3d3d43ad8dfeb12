"""What a run did, reduced to what is compared when the same program, or its case, is run again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnfuzz.corpus.signature import key_without_stack, signature
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome
from attnfuzz.generators.model.program import Program


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one run did: its status, and for a failure its kind, strong key and title; `bare` is
    the key that it has without its stack, for what may lose that (see `key_without_stack`);
    `reworded` says what differs from the failure looked for where it is that one in other words."""

    status: str
    kind: str | None = None
    key: str | None = None
    title: str | None = None
    bare: str | None = None
    reworded: str | None = None


def seen(outcome: Outcome, program: Program) -> Seen:
    """`outcome` reduced to what replay compares."""
    if outcome.failure is None:
        return Seen(status=outcome.status)
    return seen_failure(outcome.failure, program)


def seen_failure(failure: Failure, program: Program) -> Seen:
    """A failure reduced to what replay compares; its key is computed afresh on both sides, so that
    an old case can be replayed with newer rules for keys. A result that is not finite has the key
    of a wrong one: what was never written is NaN in one process and some number in the next."""
    named = signature(failure, program)
    wrong = failure.kind is FailureKind.NONFINITE
    value = replace(failure, kind=FailureKind.WRONG_RESULT) if wrong else failure
    key, bare = signature(value, program).strong, key_without_stack(failure, program)
    return Seen(status="failed", kind=failure.kind.value, key=key, title=named.title, bare=bare)


def matches(one: Seen, expected: Seen) -> bool:
    """Same strong key, or the same but for a stack that one of them has not?"""
    bare = expected.bare if expected.bare == one.bare else None
    return one.key == expected.key or (bare is not None and bare in (one.key, expected.key))
