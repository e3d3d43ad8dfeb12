"""The stages that reduce a finding: confirm it, minimize it, check a minimized hang once more.

A campaign and `attnfuzz minimize` make them here, so both give the same answer for a program.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.corpus.bucket import Bucket, assign, coarse, telling
from attnfuzz.corpus.signature import parted
from attnfuzz.fuzz.reduce.confirm import Confirm, attempts_for
from attnfuzz.fuzz.reduce.deadlines import shorter_deadlines
from attnfuzz.fuzz.reduce.evaluate import depends_on_memory
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.fuzz.reduce.judges import fails_again, fails_wherever
from attnfuzz.fuzz.reduce.minimize import Minimize
from attnfuzz.fuzz.reduce.search import Minimizer
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import FailureKind
from attnfuzz.generators.model.program import Program

ALWAYS_RUNS = 3
"""Runs, all failing, that a candidate needs for a failure that depends on what lies in memory and
has always shown so far."""


def confirmation(finding: Finding, runs: int) -> Confirm:
    """`runs` fresh runs of the program that was found."""
    return Confirm(
        finding.program,
        fails_again(finding.program, finding.outcome),
        runs,
        hangs=finding.original_failure.kind is FailureKind.HANG,
        target=finding.target,
    )


def minimization(
    finding: Finding, deadlines: Deadlines, max_candidates: int, buckets: Iterable[Bucket]
) -> Minimize:
    """The search from the simplest program so far, past programs that one of `buckets` explains,
    and at the end to one that needs nothing but what such a bucket does: a finding that is one
    simplification away from what is known is not a cause of its own.

    `deadlines` are the usual ones. A hang is minimized with shorter ones, a failure that shows
    sometimes with several runs of each candidate, and one that depends on what lies in memory with
    several that must all fail.
    """
    failure = finding.failure
    kind = None if parted(failure) else failure.kind  # fewer ranks hang where more abort
    found = finding.signature
    related = [bucket for bucket in buckets if bucket.strong == found.strong]

    def explained(program: Program) -> Bucket | None:
        return assign(found, failure, features(program), related)

    def needs_nothing_else(program: Program) -> bool:
        bucket = explained(program)
        needed = coarse(telling(features(program), failure))
        return bucket is not None and bucket.needs_trigger and needed == bucket.sorts

    search = Minimizer(
        finding.best,
        finding.best_outcome,
        fails_wherever(finding.program, finding.outcome, kind),
        max_candidates=max(1, max_candidates - finding.evaluated),
        avoid=lambda program: explained(program) is not None,
        ends_at=needs_nothing_else,
    )
    allowed = None
    if failure.kind is FailureKind.HANG:
        allowed = shorter_deadlines(failure, finding.best_outcome.cost.phases, deadlines)
    always = depends_on_memory(failure) and finding.failed == finding.runs
    attempts = ALWAYS_RUNS if always else attempts_for(finding.failed, finding.runs)
    return Minimize(search, attempts, allowed, always=always, target=finding.target)


def recheck(finding: Finding) -> Confirm:
    """One more run, at the usual deadlines, of what was minimized with shorter ones."""
    judge = fails_wherever(finding.program, finding.outcome)
    return Confirm(finding.best, judge, 1, hangs=True, target=finding.target)
