"""A simulated torch: a pool of deterministic answers with some faults in it, of some version."""

from __future__ import annotations

from collections.abc import Callable

from attnfuzz.actors.shard import ShardReport, Tally
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, ShardTask, Task
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from tests.support.fake_pool import PASSED, FakePool, program_of, raised, wrong

FAULTS: dict[str, tuple[Callable[[Program], bool], Outcome]] = {
    "lengths": (lambda program: program.shape.q_len == 0, raised("no queries")),
    "masks": (lambda program: program.mask is not None, raised("masks are broken")),
    "numbers": (lambda program: program.kernel.kind == "handwritten", wrong("out")),
    "heads": (lambda program: program.shape.head_dim == 40, raised("heads are broken")),
}
"""By name: which programs fail, and how. A program has the first fault that it meets."""


class FakeTorch(FakePool):
    """Torch `version` with those of `FAULTS` that are named."""

    def __init__(self, version: str, *faults: str) -> None:
        super().__init__()
        self._version = version
        self._faults = [FAULTS[name] for name in FAULTS if name in faults]

    def environment(self, target: str | None = None, hardware: str | None = None) -> dict[str, str]:
        return {**super().environment(target), "torch": self._version}

    def answer(self, task: Task) -> Answer:
        if isinstance(task, ShardTask):
            self.indices.append(task.shard.index)
            return self._report(task)
        if isinstance(task, RunTask):
            return [self._judged(program) for program in task.programs]
        return super().answer(task)

    def _judged(self, program: Program) -> Outcome:
        there = (outcome for fails, outcome in self._faults if fails(program))
        return next(there, PASSED)

    def _report(self, task: ShardTask) -> ShardReport:
        tally = Tally(task.shard)
        for place in range(task.shard.size):
            program = program_of(task.shard.index * task.shard.size + place)
            tally.add(program, self._judged(program))
        return tally.report(1.0, 0.0)
