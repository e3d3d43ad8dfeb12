"""How bad a failure is for a user of torch: 0 to 100, by its kind and how ordinary its program is.

A silent wrong result of an ordinary program comes first, a crash of a strange one after it, and a
refusal that is badly worded last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from attnfuzz.generators.model.ordinariness import ORDINARY, Uncommon, ordinariness
from attnfuzz.generators.model.outcome import EAGER_REFUSES, Failure, FailureKind, said
from attnfuzz.generators.model.program import Program

BASE = {
    FailureKind.WRONG_RESULT: 100,
    FailureKind.NONFINITE: 95,
    FailureKind.MUTATION: 92,
    FailureKind.CRASH: 90,
    FailureKind.ILLEGAL_ACCESS: 90,
    FailureKind.HANG: 88,
    FailureKind.NONDETERMINISM: 80,
    FailureKind.METADATA_MISMATCH: 70,
    FailureKind.OUT_OF_MEMORY: 66,
    FailureKind.TYPE_MIXING: 64,
    FailureKind.COMPILE_ERROR: 62,
    FailureKind.NO_VALID_CHOICES: 61,
    FailureKind.RUNTIME_ERROR: 60,
    FailureKind.COMPILE_TIME: 55,
    FailureKind.GRAPH_BREAK: 50,
    FailureKind.RECOMPILE_LIMIT: 50,
}
"""What is silent comes before what ends the process, and that before what says that it failed."""

REFUSAL = 25
"""Of an exception without a compiler that says in words that torch does not do this."""

RULES = 1
"""Of the scores here and of how ordinary programs are: another number whenever they change, so
that what a campaign has written down by other rules is computed anew."""

STRANGEST = 60
"""The most that an uncommon program takes off."""

FINEST = 40
"""Taken off for an error that default tolerances (1e-4) cannot see."""

DEFAULT_TOLERANCE = 1e-4
"""rtol and atol of `torch._dynamo.utils.same`."""

_REFUSES = re.compile(
    r"not (?:yet )?(?:supported|implemented|allowed)|unsupported|only supports?|does not support"
    r"|\brequires? a\b|\bmust (?:be|have)\b|\bexpected to\b",
    re.I,
)


@dataclass(frozen=True)
class Severity:
    """`score`: 0 to 100, worse is higher. `words`: what it is. `strangeness`: how far the program
    is from what models do, as `ordinariness` has it, and `uncommon` is why."""

    score: int
    words: str
    strangeness: int
    uncommon: tuple[Uncommon, ...]

    @property
    def ordinary(self) -> bool:
        """Is it a program that a model might hold?"""
        return self.strangeness <= ORDINARY

    @property
    def told(self) -> str:
        """Why the program is not ordinary, or that it is."""
        if not self.uncommon:
            return "an ordinary program"
        things = ", ".join(f"{one.what} ({one.weight})" for one in self.uncommon)
        return f"{self.strangeness}: {things}"


def severity(failure: Failure, program: Program) -> Severity:
    """How bad `failure` of `program` is."""
    strangeness, uncommon = ordinariness(program)
    base, words = _base(failure)
    score = max(0, base - min(strangeness, STRANGEST))
    return Severity(score, words, strangeness, tuple(uncommon))


def _base(failure: Failure) -> tuple[int, str]:
    base, name = BASE[failure.kind], failure.kind.value.replace("_", " ")
    if below_default_tolerance(failure):
        return base - FINEST, f"{name}, below default tolerances"
    if refuses(failure):
        return REFUSAL, "refusal that is worded as an error"
    return base, name


def refuses(failure: Failure) -> bool:
    """Whether eager torch says in words that it does not do this. What eager does and a compiler
    refuses is no refusal."""
    raised, eager_refuses = failure.raised, EAGER_REFUSES in failure.evidence
    if raised is None or (failure.kind is not FailureKind.RUNTIME_ERROR and not eager_refuses):
        return False
    return bool(_REFUSES.search(said(raised.message).split("\n")[0]))


def below_default_tolerance(failure: Failure) -> bool:
    """Whether all that is wrong is less than any comparison at default tolerances can see."""
    if failure.kind is not FailureKind.WRONG_RESULT or not failure.diffs:
        return False
    return all(one.error is not None and one.error <= DEFAULT_TOLERANCE for one in failure.diffs)
