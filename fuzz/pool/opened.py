"""A pool for one command: opened, driven until an answer is there, closed with all it started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.availability import targets
from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.gpu_assignment import MOST_PER_DEVICE
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.environment import check_packages, lacks_package
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.pool.pool import Pool, open_pool, run_all
from attnfuzz.fuzz.pool.tasks import RunTask, TaskFailed, WorkerDied
from attnfuzz.generators.model.outcome import PRELOAD_FILE, Outcome
from attnfuzz.generators.model.program import Program


@contextmanager
def pool(
    toolchain: str, preload: Sequence[Path], workers: int = 1, target: str = DEFAULT
) -> Iterator[Pool]:
    """`workers` sandboxes of the interpreter `toolchain`, gone when the block ends."""
    with (
        Scratch.create() as scratch,
        pool_in(scratch.root, toolchain, preload, workers, target) as opened,
    ):
        yield opened


@contextmanager
def pool_in(
    scratch: Path, toolchain: str, preload: Sequence[Path], workers: int = 1, target: str = DEFAULT
) -> Iterator[Pool]:
    """The same under the root of a scratch folder that is open already. Workers for a device share
    the first: to run a program takes it a moment, to compile one takes a core."""
    config = WorkerConfig(
        toolchain=toolchain,
        targets=(target,),
        preload=tuple(str(path) for path in preload),
        scratch=str(scratch),
        limits=TARGETS[target].limits,
        per_device=min(workers, MOST_PER_DEVICE),
    )
    with _explained(target, toolchain), closing(open_pool(config, workers)) as opened:
        yield opened


@contextmanager
def _explained(target: str, toolchain: str) -> Iterator[None]:
    """Where no sandbox can be had because the toolchain cannot serve the target, says that."""
    try:
        yield
    except SandboxError:
        for status in targets(toolchain) if target != DEFAULT else ():
            if status.name == target and not status.can_run:
                raise UserError(f"target {target}: {status.reason}") from None
        raise


def outcomes(
    pool: Pool,
    programs: Sequence[Program],
    task: Callable[[Program], RunTask] = lambda program: RunTask((program,)),
    where: Callable[[Program], str] = lambda program: "program",
) -> list[Outcome]:
    """Runs each program once, as many at a time as the pool has workers; outcomes in order. Raises
    UserError where the toolchain lacks a kernel's package, or what comes before a program goes
    wrong; `where` says what file a program is from."""
    answers = [
        _only_outcome(finished.result)
        for finished in run_all(pool, [task(program) for program in programs])
    ]
    for program, outcome in zip(programs, answers, strict=True):
        if lacks_package(program, outcome):
            check_packages([program.kernel.kind], pool.environment(), where(program))
        if outcome.status == "not_run":
            raise UserError(setup_sentence(where(program), outcome))
    return answers


def setup_sentence(where: str, outcome: Outcome) -> str:
    """Why a program of file `where` was not run: a preload file is named itself."""
    why = outcome.rejection or ""
    return why if why.startswith(PRELOAD_FILE) else f"{where}: {why}"


def _only_outcome(answer: object) -> Outcome:
    if isinstance(answer, TaskFailed):
        raise RuntimeError(f"a worker raised: {answer.error}")
    if isinstance(answer, WorkerDied):
        raise RuntimeError(f"a worker died {answer.attempts} times running one program")
    assert isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], Outcome)
    return answer[0]
