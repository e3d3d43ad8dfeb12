"""Scripts run by themselves, and what their end says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.scripts import run_repro
from attnfuzz.corpus.signature import OTHER_SIZE, signature
from attnfuzz.fuzz.pool.tasks import ReproRun, ReproTask
from attnfuzz.fuzz.reduce.evaluate import reproduces
from attnfuzz.fuzz.reduce.judges import fails_alike
from attnfuzz.fuzz.reduce.validate import Validate
from attnfuzz.generators.methods.specs import Heads, Ring
from attnfuzz.generators.model.outcome import (
    WAITING,
    Failure,
    FailureKind,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Mesh, Program


def run(tmp_path: Path, text: str, **more: Any) -> list[ReproRun]:
    task = ReproTask(text, sys.executable, str(tmp_path), runs=1)
    return run_repro(ReproTask(**{**vars(task), **more}))


def failure(kind: FailureKind, signal: str | None = None, raised: str | None = None) -> Failure:
    exception = Raised(type=raised, message="") if raised else None
    return Failure(kind=kind, phase=Phase.FORWARD, signal=signal, raised=exception)


WRONG = failure(FailureKind.WRONG_RESULT)
HANG = failure(FailureKind.HANG)
CRASH = failure(FailureKind.CRASH, signal="SIGABRT")
RAISES = failure(FailureKind.COMPILE_ERROR, raised="torch._inductor.exc.CppCompileError")


def test_a_script_that_hangs_is_not_run_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    text = f"import time\nopen({str(told)!r}, 'a').write('x')\ntime.sleep(600)"
    (hung,) = run(tmp_path, text, runs=3, timeout_s=5.0)
    assert hung.status is None and told.read_text() == "x"
    assert len(run(tmp_path, "", runs=3)) == 3


@pytest.mark.parametrize(("body", "hangs"), [("time.sleep(600)", True), ("spin(8)", False)])
def test_a_script_that_sleeps_hangs_before_its_deadline(
    tmp_path: Path, body: str, hangs: bool
) -> None:
    text = f"""
import time
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass
{body}
"""
    (ended,) = run(tmp_path, text, idle_s=3.0, timeout_s=300.0)
    assert ended.status == (None if hangs else 0)


def test_a_script_may_not_take_everything(tmp_path: Path) -> None:
    text = "import resource, time\ntime.sleep(1)\nlimit = resource.RLIMIT_FSIZE\n"
    text += "assert resource.getrlimit(limit)[0] == 1 << 30\nbytearray(1 << 50)"
    (ended,) = run(tmp_path, text)
    assert ended.status == 1 and "MemoryError" in ended.stderr


def test_an_assertion_is_a_wrong_result_and_nothing_else(tmp_path: Path) -> None:
    (ended,) = run(tmp_path, "assert 1 == 2, 'out is wrong'")
    assert ended.status == 1 and "out is wrong" in ended.stderr
    assert reproduces(ended, WRONG)
    assert not any(reproduces(ended, other) for other in (HANG, CRASH, RAISES))


def test_ranks_that_part_may_hang_or_abort() -> None:
    waits = replace(HANG, raised=Raised(type="Hang", message=WAITING))
    aborts = replace(CRASH, evidence={"stderr": f"gloo: {OTHER_SIZE}. 64 vs 32"})
    hung, aborted = ReproRun(None, ""), ReproRun(-6, f"what(): {OTHER_SIZE}.")
    for failed in (waits, aborts):
        assert reproduces(hung, failed) and reproduces(aborted, failed)
        assert not reproduces(ReproRun(0, f"{OTHER_SIZE} in a warning"), failed)
        assert not reproduces(ReproRun(-6, "free(): invalid pointer"), failed)
    assert not reproduces(aborted, HANG) and not reproduces(hung, CRASH)
    of_waits, of_aborts = signature(waits, Program()), signature(aborts, Program())
    assert of_waits.strong == of_aborts.strong
    assert of_waits.title.startswith("sdpa attention hangs in the ")
    assert of_aborts.title.startswith(
        "ranks of sdpa attention are in different collectives in the "
    )


def test_an_exception_must_be_the_recorded_one(tmp_path: Path) -> None:
    text = "class CppCompileError(Exception): pass\nraise CppCompileError('no')"
    assert reproduces(run(tmp_path, text)[0], RAISES)
    assert not reproduces(run(tmp_path, "raise ValueError('no')")[0], RAISES)


def test_a_signal_must_be_the_recorded_one(tmp_path: Path) -> None:
    (ended,) = run(tmp_path, "import os\nos.abort()")
    assert ended.status == -6
    assert reproduces(ended, CRASH)
    assert not reproduces(ended, failure(FailureKind.CRASH, signal="SIGFPE"))


def test_corrupted_memory_ends_in_one_signal_or_another(tmp_path: Path) -> None:
    (ended,) = run(tmp_path, "import os\nos.abort()")
    assert reproduces(ended, failure(FailureKind.CRASH, signal="SIGSEGV"))
    (wrong,) = run(tmp_path, "assert False, 'out is off'")
    assert not reproduces(wrong, CRASH)
    assert reproduces(wrong, CRASH, by_value=True)


def test_an_exception_may_be_followed_by_much_text(tmp_path: Path) -> None:
    text = "class CppCompileError(Exception): pass\nraise CppCompileError('args' * 100_000)"
    assert reproduces(run(tmp_path, text)[0], RAISES)


def test_a_script_past_its_time_is_killed_and_is_a_hang(tmp_path: Path) -> None:
    (ended,) = run(tmp_path, "while True: pass", timeout_s=0.5)
    assert ended.status is None
    assert reproduces(ended, HANG)
    assert not reproduces(ended, WRONG)


def test_a_script_that_passes_reproduces_nothing(tmp_path: Path) -> None:
    (ended,) = run(tmp_path, "x = 1")
    assert ended.status == 0
    assert not any(reproduces(ended, each) for each in (WRONG, HANG, CRASH, RAISES))


def test_it_runs_as_often_as_asked_and_leaves_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, "import tempfile\ntempfile.mkstemp()", runs=3)
    assert [one.status for one in ended] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_it_sees_no_module_of_the_current_folder_nor_of_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hidden_module.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (ended,) = run(tmp_path, "import hidden_module")
    assert "ModuleNotFoundError" in ended.stderr


def test_preload_files_come_first_under_their_names(tmp_path: Path) -> None:
    (tmp_path / "fault.py").write_text("answer = 41\n")
    text = "import fault\nassert fault.answer == 42, __name__"
    (ended,) = run(tmp_path, text, preload=(str(tmp_path / "fault.py"),))
    assert "AssertionError: __main__" in ended.stderr


@pytest.mark.parametrize(
    ("processes", "ends", "asked", "result"),
    [
        (1, [1, 0, 1], [3], (2, 3)),
        (4, [1], [1], (1, 1)),  # each process imports torch: one run that shows it is enough
        (4, [0, 1, 0], [1, 2], (1, 3)),
        (4, [0, 0, 0], [1, 2], (0, 3)),
        (4, [None], [1], (0, 1)),
    ],
)
def test_how_often_a_script_is_run(
    processes: int, ends: list[int | None], asked: list[int], result: tuple[int, int]
) -> None:
    def run_of(status: int | None) -> ReproRun:
        return ReproRun(status, "AssertionError" if status else "")

    stage = Validate(ReproTask("", "", "", runs=3, processes=processes), WRONG)
    left, runs = list(ends), []
    while isinstance(task := stage.next_task(), ReproTask):
        assert stage.next_task() is None
        runs.append(task.runs)
        stage.report(task, [run_of(left.pop(0)) for _ in range(min(task.runs, len(left)))])
    assert stage.finished and not left
    assert (runs, (stage.reproduced, stage.runs)) == (asked, result)


def test_no_run_is_asked_for_where_none_is_wanted() -> None:
    stage = Validate(ReproTask("", "", "", runs=0, processes=2), WRONG)
    task = stage.next_task()
    assert isinstance(task, ReproTask) and task.runs == 0
    stage.report(task, [])
    assert stage.finished and stage.next_task() is None


def test_ranks_in_different_collectives_are_minimized_to_the_plainest_method() -> None:
    def ended(method: Any, kind: FailureKind) -> tuple[Program, Outcome]:
        shared = Program(mesh=Mesh(world_size=2, method=method))
        evidence = {"stderr": OTHER_SIZE}
        failure = Failure(kind=kind, phase=Phase.FORWARD, signal="SIGABRT", evidence=evidence)
        return shared, Outcome(status="failed", failure=failure)

    ring, crash = ended(Ring(), FailureKind.CRASH)
    assert crash.failure is not None
    judge = fails_alike(signature(crash.failure, ring).strong, ring)
    assert judge(*ended(Heads(), FailureKind.CRASH))
    other = replace(crash, failure=replace(crash.failure, evidence={}))
    assert not judge(ended(Heads(), FailureKind.CRASH)[0], other)


def test_a_hang_of_ranks_says_what_each_waits_in() -> None:
    lines = [
        *(f"rank {rank}: barrier (c10d.py:5), from f.py:13: f(); waits in barrier, the 1st"
          for rank in range(3)),
        "rank 3: wait_tensor (c10d.py:9), from f.py:9: a; b; waits in all_gather of 4096 bfloat16",
        "parted at the 1st collective of group 0",
    ]  # fmt: skip
    assert titled(lines).endswith(": rank 3 in all_gather, the others in barrier")
    assert ":" not in titled(lines[:3]), "all wait in the same"
    simulated = ["rank 0: waits in all_gather, number 1; 8 issued", "rank 1: has ended; 7 issued"]
    assert titled(simulated).endswith(": rank 0 in all_gather, rank 1 ended")
    many = [f"rank {rank}: waits in {'ab'[rank // 4]}, number 1" for rank in range(8)]
    assert titled([*many, "rank 8: waits in b, number 1"]).endswith(
        ": 4 ranks in a, the others in b"
    )


def titled(ranks: list[str]) -> str:
    return signature(replace(HANG, evidence={"ranks": "\n".join(ranks)}), Program()).title
