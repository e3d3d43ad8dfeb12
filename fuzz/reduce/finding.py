"""A finding: a program that failed, and what confirming and minimizing have shown of it so far."""

from __future__ import annotations

from dataclasses import dataclass

from attnfuzz.corpus.signature import Signature, signature
from attnfuzz.fuzz.reduce.confirm import Confirm
from attnfuzz.fuzz.reduce.search import Minimizer
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome
from attnfuzz.generators.model.program import Program


@dataclass
class Finding:
    """`program`, which failed with `outcome` on `target`. `best` is the simplest program so far
    that fails alike, `best_outcome` what that did; at first they are the program's own. `failed` of
    `runs` fresh runs of `program` failed. `evaluated` candidates were run before, by a campaign
    that was cut short."""

    program: Program
    outcome: Outcome
    target: str
    best: Program
    best_outcome: Outcome
    failed: int = 0
    runs: int = 0
    evaluated: int = 0

    @classmethod
    def of(cls, program: Program, outcome: Outcome, target: str) -> Finding:
        """A finding with which nothing has been done."""
        return cls(program, outcome, target, program, outcome)

    @property
    def failure(self) -> Failure:
        """How the simplest program so far fails."""
        assert self.best_outcome.failure is not None
        return self.best_outcome.failure

    @property
    def original_failure(self) -> Failure:
        """How the program failed when it was found."""
        assert self.outcome.failure is not None
        return self.outcome.failure

    @property
    def signature(self) -> Signature:
        """That of the failure as it was found, which candidates must show again."""
        return signature(self.original_failure, self.program)

    @property
    def simplified(self) -> bool:
        """Whether a simpler program than the one that was found is known."""
        return self.best != self.program

    @property
    def needs_recheck(self) -> bool:
        """Whether the minimized program must be run once more at the usual deadlines: candidates of
        a hang have shorter ones, so it may only be slow."""
        return self.simplified and self.failure.kind is FailureKind.HANG

    def take_confirmation(self, stage: Confirm) -> None:
        """Notes how often the program failed in fresh runs. Their outcome replaces that
        of the run that found it, as long as the kind is the same."""
        self.failed, self.runs = stage.failed, stage.runs
        again = stage.outcome
        alike = again and again.failure and again.failure.kind is self.failure.kind
        if again and alike and not self.simplified:
            self.best_outcome = again

    def take_best(self, search: Minimizer) -> None:
        """Notes the simplest program that the search has found so far."""
        self.best, self.best_outcome = search.best, search.outcome

    def take_recheck(self, stage: Confirm) -> None:
        """Keeps the minimized hang where it hangs at the usual deadlines too; else the program as
        it was found."""
        if stage.outcome is None:
            self.best, self.best_outcome = self.program, self.outcome
        else:  # with native stacks, which candidates lack
            self.best_outcome = stage.outcome
