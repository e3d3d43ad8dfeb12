"""Attribution: is a failure that has no stack one whose cause is known?

Runs counterfactuals: the program without one thing that the suspected bucket needs. See
`corpus.counterfactual`.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.verdict import is_defect
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.counterfactual import counterfactuals
from attnfuzz.fuzz.pool.stage import outcomes_of
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, Task
from attnfuzz.fuzz.reduce.judges import Judge
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program

Suspect = tuple[Bucket, Sequence[Program]]
"""A bucket that may explain a failure, and its counterfactuals for the program that failed."""

MAX_RUNS = 3
"""Runs that telling a repeated failure's cause may take."""


def suspected(buckets: Sequence[Bucket], program: Program) -> list[Suspect]:
    """The first few of the buckets, as far as `program` has counterfactuals of them."""
    found = [(one, counterfactuals(one, program)) for one in buckets[:MAX_RUNS]]
    return [(one, programs) for one, programs in found if programs]


class Attribute:
    """Tries the `suspects` in turn. `judge` says whether a run failed as the program did that is
    looked into, on `target`.

    At the end `bucket` is the one whose counterfactuals did all not fail so, if there is one, and
    `simpler` a program without what another one needs that did, with its outcome: then something
    else is wrong.
    """

    def __init__(self, suspects: Sequence[Suspect], judge: Judge, target: str) -> None:
        self.bucket: Bucket | None = None
        self.simpler: tuple[Program, Outcome] | None = None
        self.other_failures: list[tuple[Program, Outcome]] = []
        self._judge = judge
        self._target = target
        self._suspects = list(suspects)
        self._left: list[Program] = []
        self._runs = 0
        self._running = False
        self._next_suspect()

    @property
    def finished(self) -> bool:
        return self.bucket is not None or (not self._running and not self._left)

    def next_task(self) -> Task | None:
        if self._running or self.finished:
            return None
        self._running = True
        self._runs += 1
        settings = RunSettings(confirm_hang=False, target=self._target)
        return RunTask((self._left[0],), settings)

    def report(self, task: Task, answer: Answer) -> None:
        self._running = False
        program = self._left.pop(0)
        [outcome] = outcomes_of(task, answer)
        if self._judge(program, outcome):
            self.simpler = self.simpler or (program, outcome)
        elif outcome.status == "failed" and not is_defect(outcome):
            self.other_failures.append((program, outcome))
        gone = outcome.status == "passed" or bool(self.other_failures)
        if not gone:
            self._next_suspect()
        elif not self._left:
            self.bucket = self._suspect

    def _next_suspect(self) -> None:
        """On to the next bucket, as long as there are runs left."""
        self._left = []
        while self._suspects and not self._left and self._runs < MAX_RUNS:
            self._suspect, programs = self._suspects.pop(0)
            self._left = list(programs[: MAX_RUNS - self._runs])
