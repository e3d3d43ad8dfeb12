"""Minimization as a stage: the candidates of a search become tasks for a pool."""

from __future__ import annotations

from attnfuzz.actors.runs import RunSettings, Until
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.fuzz.pool.stage import outcomes_of
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, Task
from attnfuzz.fuzz.reduce.search import Minimizer
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program


class Minimize:
    """The search as a stage: its candidates as tasks for a pool, on `target` (None: the
    worker's first).

    Each candidate runs up to `attempts` times (in one task) and fails alike when one of the runs
    does, or with `always` when all do: what depends on what lies in memory could else be minimized
    into something that shows by chance. `progress` is set whenever there is a new best that the
    campaign has not saved yet.
    """

    def __init__(
        self,
        search: Minimizer,
        attempts: int = 1,
        deadlines: Deadlines | None = None,
        *,
        always: bool = False,
        target: str | None = None,
    ) -> None:
        self.search = search
        self.progress = False
        self._attempts = attempts
        self._deadlines = deadlines
        self._always = always
        self._target = target

    @property
    def other_failures(self) -> list[tuple[Program, Outcome]]:
        return self.search.other_failures

    @property
    def finished(self) -> bool:
        return self.search.finished

    def next_task(self) -> Task | None:
        best = self.search.best
        program = self.search.next_candidate()
        if self.search.best is not best:  # by a candidate whose answer had come before
            self.progress = True
        if program is None:
            return None
        # A hang is called one at once here: confirming each would take three deadlines more.
        until: Until = "not failed" if self._always else "failed"
        settings = RunSettings(
            deadlines=self._deadlines, confirm_hang=False, until=until, target=self._target
        )
        return RunTask((program,) * self._attempts, settings)

    def report(self, task: Task, answer: Answer) -> None:
        assert isinstance(task, RunTask)
        program, outcomes = task.programs[0], outcomes_of(task, answer)
        alike = [outcome for outcome in outcomes if self.search.judge(program, outcome)]
        other = [outcome for outcome in outcomes if outcome not in alike]
        if not alike or (self._always and other):
            decisive = max(other, key=lambda outcome: outcome.status == "failed")
        else:
            decisive = alike[0]
        if self.search.report(program, decisive):
            self.progress = True
