"""The sandbox against programs that misbehave: what each is called, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.sandbox import procs
from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.sandbox.sandbox import Sandbox, SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.generators.model.outcome import FailureKind, Phase
from attnfuzz.generators.model.program import Compile
from tests.support.outcomes import failing, functions, said
from tests.support.sources import source

ROOT = Path(__file__).resolve().parent.parent
JOB = Job()
HASTY = Job(deadlines=Deadlines(eager=1.0))

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def sandbox(undisturbed_sandbox: Sandbox) -> Sandbox:
    return undisturbed_sandbox


CRASH = (FailureKind.CRASH, Phase.EAGER)
HANG = (FailureKind.HANG, Phase.EAGER)


def test_a_program_that_behaves_passes(sandbox: Sandbox) -> None:
    outcome = sandbox.run(source(), JOB)
    assert outcome.status == "passed"
    assert outcome.cost.cpu_s > 0
    assert outcome.cost.peak_rss_mb > 100
    assert {"build", "reference", "eager"} <= set(outcome.cost.phases)


def test_a_compiled_program_compiles_in_folders_of_its_own(sandbox: Sandbox) -> None:
    job = Job(compile=Compile(fullgraph=False))
    outcome = sandbox.run(source(compiled=True), job)
    assert outcome.status == "passed", outcome
    assert "compile" in outcome.cost.phases


def test_inductor_is_warmed_up_for_the_first_program_that_compiles() -> None:
    with Scratch.create() as scratch, Sandbox(scratch=scratch.root) as fresh:
        assert fresh.run(source(), JOB).status == "passed"
        server = fresh._server
        assert server is not None and not server._warm
        before = fresh.harness_cpu_s()
        outcome = fresh.run(source(compiled=True), Job(compile=Compile(fullgraph=False)))
        assert outcome.status == "passed", outcome
        assert server is fresh._server and server._warm
        assert fresh.harness_cpu_s() - before < 1, "a warm-up is no cost of serving"
        assert fresh.run(source(), JOB).status == "passed"


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_before_the_result_is_a_crash(sandbox: Sandbox, code: int) -> None:
    outcome = sandbox.run(source(f"import os; os._exit({code})"), JOB)
    assert failing(outcome) == CRASH
    assert said(outcome) == f"exited with code {code} before giving a result"


@pytest.mark.parametrize(
    ("body", "innermost"),
    [
        ("while True: pass", ("<program>", "attention")),
        ("import re; re.match(r'(a+)+$', 'a' * 60 + 'b')", ("re/__init__.py", "match")),
    ],
    ids=["python", "holding-the-gil"],
)
def test_an_endless_loop_is_a_hang(sandbox: Sandbox, body: str, innermost: tuple[str, str]) -> None:
    outcome = sandbox.run(source(body), HASTY)
    assert failing(outcome) == HANG
    assert said(outcome) == "no progress in phase eager in 3 s"
    assert functions(outcome)[-1] == innermost
    assert outcome.failure is not None
    assert "attention (program.py" in outcome.failure.evidence["stacks"]
    assert all(len(text) <= 20_000 for text in outcome.failure.evidence.values())


def test_a_slow_program_is_no_hang_at_the_second_try(sandbox: Sandbox) -> None:
    # Eager attention runs twice, the second time for determinism: 4 s in all, of 3 and then of 9.
    slow = Job(deadlines=Deadlines(eager=3.0))
    outcome = sandbox.run(source("import time; time.sleep(2)"), slow)
    assert outcome.status == "passed", outcome
    assert "3 s" in outcome.skipped["deadline"]


def test_without_confirmation_the_first_missed_deadline_decides(sandbox: Sandbox) -> None:
    outcome = sandbox.run(source("import time; time.sleep(1.5)"), HASTY, confirm_hang=False)
    assert failing(outcome) == HANG


def test_the_total_is_a_deadline_too(sandbox: Sandbox) -> None:
    job = Job(deadlines=Deadlines(total=1.0))
    outcome = sandbox.run(source("while True: pass"), job, confirm_hang=False)
    assert failing(outcome) == HANG


def test_what_compiles_for_longer_than_it_may_is_stopped_and_no_failure(sandbox: Sandbox) -> None:
    body = "torch._dynamo.comptime.comptime(lambda ctx: [0 for _ in iter(int, 1)])"
    job = Job(compile=Compile(fullgraph=False), budget_s=0.5)
    outcome = sandbox.run(source(body, compiled=True), job)
    assert (outcome.status, outcome.failure) == ("stopped", None), outcome
    assert outcome.cost.cpu_s > 0.5 and "phase compile" in (outcome.rejection or "")
    assert sandbox.processes() == []
    endless = sandbox.run(source("while True: pass"), replace(HASTY, budget_s=0.5))
    assert failing(endless) == HANG, "what does not compile has its deadlines"


def test_a_stopped_program_is_a_hang(sandbox: Sandbox) -> None:
    # Long enough for a loaded machine to get as far as the signal.
    job = Job(deadlines=Deadlines(eager=6.0))
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    outcome = sandbox.run(source(stop), job, confirm_hang=False)
    assert failing(outcome) == HANG
    assert outcome.failure is not None
    assert "state T" in outcome.failure.evidence["processes"]


@pytest.mark.parametrize(
    "body",
    [
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
        """,
        """
        import subprocess
        subprocess.Popen(["sleep", "1000"], start_new_session=True, env={})
        """,
    ],
    ids=["double-fork", "new-session-without-environment"],
)
def test_what_a_program_leaves_running_is_ended(sandbox: Sandbox, body: str) -> None:
    assert sandbox.run(source(body), JOB).status == "passed"


@pytest.mark.parametrize(
    "body",
    [
        """
        import atexit, time
        atexit.register(time.sleep, 1000)
        """,
        """
        import threading, time
        threading.Thread(target=time.sleep, args=(1000,)).start()
        """,
    ],
    ids=["registered", "thread"],
)
def test_a_hang_at_exit_is_told_as_one(sandbox: Sandbox, body: str) -> None:
    hasty = Job(deadlines=Deadlines(exit=1.0))
    outcome = sandbox.run(source(body), hasty, confirm_hang=False)
    assert failing(outcome) == (FailureKind.HANG, Phase.EXIT)


def test_what_is_registered_for_the_exit_may_end_the_process(sandbox: Sandbox) -> None:
    body = """
    import atexit, os
    atexit.register(os.abort)
    """
    assert failing(sandbox.run(source(body), JOB)) == (FailureKind.CRASH, Phase.EXIT)
    assert (
        sandbox.run(source("import atexit, sys\natexit.register(sys.exit, 3)"), JOB).failure is None
    )


def test_processes_that_multiply_are_all_ended(sandbox: Sandbox) -> None:
    body = """
    import os
    for _ in range(5):
        os.fork()
    while True:
        pass
    """
    assert failing(sandbox.run(source(body), HASTY, confirm_hang=False)) == HANG


def test_a_closed_pipe_is_an_exit_without_a_result(sandbox: Sandbox) -> None:
    outcome = sandbox.run(source("import os; os.closerange(0, 4096)"), JOB)
    assert outcome.failure is not None and outcome.failure.kind is FailureKind.CRASH


def test_garbage_and_forged_results_on_every_descriptor_are_ignored(sandbox: Sandbox) -> None:
    body = r"""
    import json, os
    forged = json.dumps({"outcome": {"status": "rejected", "rejection": "forged"}})
    for fd in range(3, 64):
        try:
            os.write(fd, b"\xff\xfe\n" + forged.encode() + b"\n{ never ended")
        except OSError:
            pass
    """
    assert sandbox.run(source(body), JOB).status == "passed"


def test_a_flood_on_the_pipe_holds_no_deadline_up(sandbox: Sandbox) -> None:
    body = """
    import os, stat
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                while True:
                    os.write(fd, b"x" * 65536)
        except OSError:
            pass
    """
    assert failing(sandbox.run(source(body), HASTY, confirm_hang=False)) == HANG


def test_what_it_prints_is_kept_in_part(sandbox: Sandbox) -> None:
    body = "import os; print('x' * 100_000 + 'end', flush=True); os.abort()"
    outcome = sandbox.run(source(body), JOB)
    assert outcome.failure is not None
    kept = outcome.failure.evidence["stdout"]
    assert len(kept) == 20_000 and kept.endswith("end\n")


def test_a_folder_it_locks_is_removed(sandbox: Sandbox) -> None:
    body = """
    import os
    os.makedirs("a/b", exist_ok=True)
    open("a/b/c", "w").close()
    os.chmod("a", 0)
    """
    assert sandbox.run(source(body), JOB).status == "passed"


@pytest.mark.parametrize(
    ("name", "job", "expected"), [("SIGKILL", JOB, CRASH), ("SIGSTOP", HASTY, HANG)]
)
def test_a_program_may_attack_its_parent(
    sandbox: Sandbox, name: str, job: Job, expected: tuple[FailureKind, Phase]
) -> None:
    body = f"import os, signal, time; os.kill(os.getppid(), signal.{name}); time.sleep(100)"
    outcome = sandbox.run(source(body), job, confirm_hang=False)
    assert failing(outcome) == expected


def test_a_source_that_is_no_python_fails_to_build(sandbox: Sandbox) -> None:
    outcome = sandbox.run("this is no python", JOB)
    assert outcome.failure is not None and outcome.failure.phase is Phase.BUILD


def test_the_environment_is_told(sandbox: Sandbox) -> None:
    assert {"python", "torch", "triton", "cxx", "cpu", "os"} == set(sandbox.environment)
    assert sandbox.environment["torch"].startswith("2.")


def test_the_process_that_owns_the_sandbox_never_imports_torch(sandbox: Sandbox) -> None:
    check = (
        "import sys, attnfuzz.actors.sandbox.sandbox, attnfuzz.actors.targets.availability; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0


def test_harness_cpu_is_counted(sandbox: Sandbox) -> None:
    before = sandbox.harness_cpu_s()
    for _ in range(10):
        sandbox.run(source(), JOB)
    assert sandbox.harness_cpu_s() - before > 0


OWNER = """
import sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.scratch import Scratch
from tests.support.sources import source
scratch = Scratch.create()
print(scratch.root, scratch.run_id, flush=True)
sandbox = Sandbox(scratch=scratch.root)
sandbox.run(source("import time; time.sleep(1000)"), Job())
"""


@pytest.mark.parametrize("running", [1, 2], ids=["zygote-starting", "program-running"])
def test_nothing_outlives_a_killed_owner(running: int) -> None:
    code = OWNER.format(root=str(ROOT), tests=str(ROOT / "tests"))
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    root, run_id = owner.stdout.readline().split()
    while len(procs.marked("ATTNFUZZ_RUN", run_id)) < running:
        time.sleep(0.05)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    patience = time.monotonic() + 30
    while (procs.marked("ATTNFUZZ_RUN", run_id) or Path(root).exists()) and (
        time.monotonic() < patience
    ):
        time.sleep(0.1)
    assert procs.marked("ATTNFUZZ_RUN", run_id) == []
    assert not Path(root).exists()


def test_a_folder_that_is_removed_meanwhile_is_no_failure_of_the_program(scratch: Path) -> None:
    body = """
    import os
    open("here", "w").close()
    while os.path.exists("here"): pass
    os._exit(1)
"""

    def remove() -> None:
        while not (running := [*scratch.glob("s*/r*/here")]):
            time.sleep(0.05)
        folder = running[0].parent
        away = folder.parent.rename(scratch / "away")  # at once, as the program may end before
        (away / folder.name / "here").unlink()

    with Sandbox(scratch=scratch) as sandbox:
        threading.Thread(target=remove, daemon=True).start()
        with pytest.raises(SandboxError, match="was removed while a program ran"):
            sandbox.run(source(body), JOB)
