"""A pool of deterministic answers: what each program does is decided by its parts."""

from __future__ import annotations

from attnfuzz.actors.shard import Shard, ShardReport, Tally
from attnfuzz.fuzz.pool.tasks import (
    Answer,
    Finished,
    Handle,
    ReproRun,
    ReproTask,
    RunTask,
    ShardTask,
    Task,
)
from attnfuzz.generators.kernels.specs import Handwritten, Sdpa
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Layer,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Compile, Input, Program, Shape
from attnfuzz.generators.strategies.seeds import derive

PASSED = Outcome(status="passed")


def raised(message: str) -> Outcome:
    exception = Raised(type="RuntimeError", message=message)
    failure = Failure(
        kind=FailureKind.COMPILE_ERROR,
        phase=Phase.COMPILE,
        layer=Layer.INDUCTOR,
        raised=exception,
    )
    return Outcome(status="failed", failure=failure)


def wrong(*outputs: str) -> Outcome:
    diffs = tuple(
        Diff(output=name, what="value", expected="1", actual="2", error=1.0, budget=0.1)
        for name in outputs
    )
    failure = Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=Layer.EAGER, diffs=diffs
    )
    return Outcome(status="failed", failure=failure)


def program_of(seed: int) -> Program:
    """A program whose parts are the bits of a number."""
    bits = derive(7, seed)
    return Program(
        seed=seed,
        kernel=Handwritten() if bits & 1 else Sdpa(),
        mask=Causal(offset=bits % 5) if bits & 6 == 0 else None,
        shape=Shape(
            batch=1 + (bits >> 4) % 3,
            q_len=(0, 16, 17, 33)[(bits >> 6) % 4],
            kv_len=(16, 31, 48)[(bits >> 8) % 3],
            head_dim=(16, 40)[(bits >> 10) % 2],
        ),
        q=Input(dtype="bfloat16" if bits & 64 else "float32"),
        compile=Compile() if bits & 128 else None,
    )


def judged(program: Program, fresh: bool) -> Outcome:
    """What a program does: four faults, the last of which shows in shards only (flaky)."""
    if program.shape.q_len == 0:
        return raised("no queries")
    if program.mask is not None:
        return raised("masks are broken")
    if program.kernel.kind == "handwritten" and program.shape.kv_len > 20:
        return wrong("out")
    if program.shape.head_dim == 40 and not fresh:
        return raised("once in a while")
    return PASSED


class FakePool:
    """Answers at once; `size` tasks may be under way, and come back newest first."""

    def __init__(self, size: int = 2) -> None:
        self.size = size
        self.indices: list[int] = []
        self._running: list[tuple[Handle, Task]] = []
        self._handles = 0

    spread = 0

    @property
    def free(self) -> int:
        return self.size - len(self._running)

    def takes(self, target: str | None, hardware: str | None = None) -> bool:
        return self.free > 0

    def serves(self, target: str, hardware: str | None = None) -> bool:
        return True

    def states(self) -> dict[str, int]:
        return {"idle": self.free, "busy": self.size - self.free}

    def environment(self, target: str | None = None, hardware: str | None = None) -> dict[str, str]:
        return {"torch": "2.13.0", "python": "3.11", "target": "cpu"}

    def submit(self, task: Task, hardware: str | None = None) -> Handle:
        assert self.free > 0
        self._handles += 1
        self._running.append((self._handles, task))
        return self._handles

    def wait(self, timeout: float) -> list[Finished]:
        if not self._running:
            return []
        handle, task = self._running.pop()
        return [Finished(handle, task, self.answer(task))]

    def answer(self, task: Task) -> Answer:
        if isinstance(task, ShardTask):
            self.indices.append(task.shard.index)
            return report(task.shard)
        if isinstance(task, RunTask):
            return [judged(program, fresh=True) for program in task.programs]
        assert isinstance(task, ReproTask)
        return [self.repro(task) for _ in range(task.runs)]

    def repro(self, task: ReproTask) -> ReproRun:
        return ReproRun(1, "RuntimeError: AssertionError")

    def close(self) -> None:
        self._running.clear()


def report(shard: Shard) -> ShardReport:
    tally = Tally(shard)
    for place in range(shard.size):
        program = program_of(shard.index * shard.size + place)
        tally.add(program, judged(program, fresh=False))
    return tally.report(1.0, 0.0)


class Slow(FakePool):
    """Masks make programs miss a deadline; `status` is how their scripts end, None if never."""

    status: int | None = 0

    def answer(self, task: Task) -> Answer:
        if isinstance(task, RunTask):
            return [hung() if p.mask is not None else PASSED for p in task.programs]
        if isinstance(task, ShardTask):
            tally = Tally(task.shard)
            for place in range(task.shard.size):
                program = program_of(task.shard.index * task.shard.size + place)
                tally.add(program, PASSED if program.mask is None else hung())
            return tally.report(1.0, 0.0)
        return super().answer(task)

    def repro(self, task: ReproTask) -> ReproRun:
        return ReproRun(self.status, "")


def hung() -> Outcome:
    failure = Failure(kind=FailureKind.HANG, phase=Phase.FORWARD, layer=Layer.EAGER)
    return Outcome(status="failed", failure=failure)
