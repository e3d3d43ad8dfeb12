"""A pool for one command: opened, driven until an answer is there, closed with all it started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from actors.scratch import Scratch
from actors.target import TARGETS
from actors.worker import WorkerConfig
from fuzz.environment import check_packages, lacks_package
from fuzz.pool import Pool, open_pool, run_all
from fuzz.schedule import Stage
from fuzz.tasks import RunTask, TaskFailed, WorkerDied
from generators.outcome import Outcome
from generators.program import Program

WAIT_S = 1.0


@contextmanager
def pool(
    toolchain: str, preload: Sequence[Path], workers: int = 1, target: str = "cpu"
) -> Iterator[Pool]:
    """`workers` sandboxes of the interpreter `toolchain`, gone when the block ends."""
    with (
        Scratch.create() as scratch,
        pool_in(scratch.root, toolchain, preload, workers, target) as opened,
    ):
        yield opened


@contextmanager
def pool_in(
    scratch: Path, toolchain: str, preload: Sequence[Path], workers: int = 1, target: str = "cpu"
) -> Iterator[Pool]:
    """The same under the root of a scratch folder that is open already."""
    config = WorkerConfig(
        toolchain=toolchain,
        targets=(target,),
        preload=tuple(str(path) for path in preload),
        scratch=str(scratch),
        limits=TARGETS[target].limits,
    )
    with closing(open_pool(config, workers)) as opened:
        yield opened


def outcomes(
    pool: Pool,
    programs: Sequence[Program],
    task: Callable[[Program], RunTask] = lambda program: RunTask((program,)),
) -> list[Outcome]:
    """Runs each program once, as many at a time as the pool has workers; outcomes in order.
    Raises UserError where the toolchain lacks a kernel's package."""
    told = [
        _only_outcome(finished.result)
        for finished in run_all(pool, [task(program) for program in programs])
    ]
    for program, outcome in zip(programs, told, strict=True):
        if lacks_package(program, outcome):
            check_packages([program.kernel.kind], pool.environment(), "program")
    return told


def drive(
    pool: Pool,
    stage: Stage,
    told: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Keeps the pool busy with one stage until it is finished or `stop` says so; `told` is called
    after every answer."""
    running = 0
    while not stage.finished and not stop():
        while pool.free and (task := stage.ask()) is not None:
            pool.submit(task)
            running += 1
        if not running:
            return
        for finished in pool.wait(WAIT_S):
            running -= 1
            stage.tell(finished.task, finished.result)
            told()


def _only_outcome(answer: object) -> Outcome:
    if isinstance(answer, TaskFailed):
        raise RuntimeError(f"a worker raised: {answer.error}")
    if isinstance(answer, WorkerDied):
        raise RuntimeError(f"a worker died {answer.attempts} times running one program")
    assert isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], Outcome)
    return answer[0]
