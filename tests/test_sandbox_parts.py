"""The sandbox's parts, one by one: processes, messages, stacks, verdicts, jobs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.sandbox import confine, ports, procs, stacks, verdict
from attnfuzz.actors.sandbox.files import remove_tree
from attnfuzz.actors.sandbox.headers import (
    DONE,
    LIBRARIES,
    drop_headers_since,
    drop_unfinished,
)
from attnfuzz.actors.sandbox.job import Deadlines, Job, shapes_a_call
from attnfuzz.actors.sandbox.messages import LONGEST, Messages
from attnfuzz.actors.sandbox.sandbox import Sandbox, SandboxError
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.masks import Causal, Documents
from attnfuzz.generators.model.outcome import DEEPER, Cost, FailureKind, Frame, Phase
from attnfuzz.generators.model.program import Call, Compile, Program

ROOT = Path(__file__).resolve().parent.parent
TREE = r"""
import os, sys, time
for _ in range(3):
    os.fork()
if os.getpid() % 2:
    os.setsid()
os.write(1, b"%d\n" % os.getpid())
time.sleep(1000)
"""


# --- processes


def test_a_tree_of_processes_is_ended_wherever_its_members_went() -> None:
    parent = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = {int(parent.stdout.readline()) for _ in range(8)}
    assert set(procs.descendants(parent.pid)) | {parent.pid} == pids

    def find() -> list[int]:
        return [pid for pid in procs.running() if pid in pids]

    assert procs.kill_all(find) == []
    parent.wait()
    assert not pids & procs.running().keys()


def test_a_reserved_port_is_free_at_every_address() -> None:
    with ports.reserved() as port, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.2", port))
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", port))
        other.listen()


COMPILING = """
import socket, subprocess, sys
from attnfuzz.actors.sandbox.zygote import ending_with
link = socket.socket(fileno=int(sys.argv[1]))
with ending_with(link):
    compiler = subprocess.Popen(["sleep", "1000"])
    print(compiler.pid, flush=True)
    compiler.wait()
"""


def test_a_zygote_that_compiles_ends_with_its_owner_and_so_does_its_compiler() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        zygote = subprocess.Popen(
            [sys.executable, "-c", COMPILING, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
    assert zygote.stdout is not None
    compiler = int(zygote.stdout.readline())
    assert compiler in procs.running() and zygote.poll() is None
    ours.close()
    assert zygote.wait(30) == 1
    assert compiler not in procs.running()


def test_a_process_is_found_by_what_its_environment_says() -> None:
    sleeper = subprocess.Popen(["sleep", "1000"], env={"ATTNFUZZ_TEST": f"of{os.getpid()}"})
    try:
        deadline = time.monotonic() + 10
        while procs.marked("ATTNFUZZ_TEST", f"of{os.getpid()}") != [sleeper.pid]:
            assert time.monotonic() < deadline
        assert procs.marked("ATTNFUZZ_TEST", f"of{os.getpid()}0") == []
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_name_with_parentheses_does_not_confuse() -> None:
    mine = procs.read(os.getpid())
    assert mine is not None
    assert (mine.ppid, mine.pgid, mine.sid) == (os.getppid(), os.getpgrp(), os.getsid(0))


def test_a_process_that_has_ended_is_none() -> None:
    assert procs.read(2**22 + 1) is None
    assert procs.cpu_seconds(2**22 + 1) == 0.0


# --- messages


@pytest.fixture
def pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return reading, writing


def test_only_lines_behind_the_token_count(pipe: tuple[int, int]) -> None:
    messages = Messages(pipe[0], "secret")
    os.write(pipe[1], b'{"phase": "a"}\nrubbish\nsecret{"phase": "b"}\n\xff')
    os.write(pipe[1], b'\nsecret{"phase": "c"}\nsecret{"pha\nsecret{"phase": "d"')
    assert messages.read() == ([{"phase": "b"}, {"phase": "c"}], True)
    os.write(pipe[1], b"}\n")
    os.close(pipe[1])
    assert messages.read() == ([{"phase": "d"}], False)


def test_an_endless_line_is_not_kept(pipe: tuple[int, int]) -> None:
    messages = Messages(pipe[0], "secret")
    for _ in range(LONGEST // 65536 + 2):
        os.write(pipe[1], b"x" * 65536)
        messages.read()
    assert len(messages._rest) < LONGEST
    os.write(pipe[1], b'\nsecret{"phase": "b"}\n')
    assert messages.read()[0] == [{"phase": "b"}]


# --- stacks

FAULTS = f"""Fatal Python error: Segmentation fault

Thread 0x00007fab (most recent call first):
  File "/x/lib/python3.11/threading.py", line 1 in wait

Current thread 0x00007fac (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/_ops.py", line 12 in __call__
  File "/x/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/s/r1/program.py", line 3 in attention
  File "{ROOT}/actors/child/main.py", line 9 in execute
  File "{ROOT}/actors/sandbox/zygote.py", line 9 in main

Extension modules: torch._C (total: 1)
"""


def test_frames_of_the_thread_that_crashed_outermost_first_without_ours() -> None:
    assert stacks.python_frames(FAULTS, Path("/s/r1/program.py")) == (
        Frame(file="<program>", function="attention", line=3),
        Frame(file="ctypes/__init__.py", function="string_at", line=519),
        Frame(file="torch/_ops.py", function="__call__", line=12),
    )
    assert stacks.python_frames("", Path("/s/r1/program.py")) == ()


def test_a_stack_too_deep_for_its_dump_is_known_as_one() -> None:
    deep = FAULTS.replace('  File "/s/r1/program.py", line 3 in attention\n', "  ...\n")
    frames = stacks.python_frames(deep, Path("/s/r1/program.py"))
    assert [frame.file for frame in frames] == [DEEPER, "ctypes/__init__.py", "torch/_ops.py"]


NATIVE = """SIGSEGV(11), PID: 8018, Thread 8018:
 frame #0: c10::FatalSignalHandler::stacktraceSignalHandler(bool) + 0x8f (0x7f in /v/libc10.so)
frame #2: <unknown function> + 0x3c050 (0x7f in /lib/x86_64-linux-gnu/libc.so.6)
frame #4: gsignal + 0x12 (0x7fecf2c59fb2 in /lib/x86_64-linux-gnu/libc.so.6)
frame #5: at::native::softmax(at::Tensor const&, long) + 0x12 (0x7f in /v/lib/libtorch_cpu.so)
frame #6: kernel + 0x1 (0x7f in /tmp/x/c4mh.main.so)
<omitting python frames>
frame #9: __libc_start_main + 0x85 (0x7f in /lib/libc.so.6)
"""


def test_native_frames_outermost_first_without_the_handlers() -> None:
    assert stacks.native_frames(NATIVE) == (
        Frame(file="c4mh.main.so", function="kernel"),
        Frame(file="libtorch_cpu.so", function="at::native::softmax(at::Tensor const&, long)"),
    )


def test_evidence_is_cut_by_bytes(tmp_path: Path) -> None:
    assert len(stacks.head("ä" * 30_000).encode()) <= stacks.EVIDENCE_BYTES
    (tmp_path / "out").write_text("a" * 30_000 + "end")
    assert stacks.tail(tmp_path / "out")[-4:] == "aend"
    assert len(stacks.tail(tmp_path / "out")) == stacks.EVIDENCE_BYTES
    assert stacks.tail(tmp_path / "none") == ""


# --- verdicts


def ending(folder: Path, status: int, oom_killed: bool = False) -> verdict.Ending:
    return verdict.Ending(
        status=status,
        phase=Phase.FORWARD,
        cost=Cost(),
        source=folder / "program.py",
        oom_killed=oom_killed,
    )


def test_sigkill_is_out_of_memory_only_where_the_kernel_says_so(tmp_path: Path) -> None:
    for oom_killed, kind in ((True, FailureKind.OUT_OF_MEMORY), (False, FailureKind.CRASH)):
        outcome = verdict.of_ending(ending(tmp_path, signal.SIGKILL, oom_killed))
        assert outcome.failure is not None
        assert (outcome.failure.kind, outcome.failure.signal) == (kind, "SIGKILL")


def test_last_words_of_an_abort_are_its_message(tmp_path: Path) -> None:
    (tmp_path / confine.STDERR).write_text("warning\nfree(): invalid pointer\nframe #0: x\n")
    outcome = verdict.of_ending(ending(tmp_path, signal.SIGABRT))
    assert outcome.failure is not None and outcome.failure.raised is not None
    assert outcome.failure.raised.message == "free(): invalid pointer"
    assert outcome.failure.phase is Phase.FORWARD


def test_a_defect_of_the_harness_is_told_from_a_finding(tmp_path: Path) -> None:
    ours = verdict.of_defect(ending(tmp_path, 0), "Traceback:\n  …\nValueError: no")
    assert verdict.is_defect(ours)
    assert verdict.is_defect(verdict.of_unrendered("Traceback:\nKeyError: 'x'"))
    assert not verdict.is_defect(verdict.of_ending(ending(tmp_path, signal.SIGSEGV)))


# --- jobs


def test_a_job_is_json_and_carries_the_program_s_settings() -> None:
    program = Program(compile=Compile(mode="max-autotune"), autocast="bfloat16")
    message = Job.of(program).to_message("/s/program.py", ["/p.py"])
    assert json.loads(json.dumps(message)) == message
    assert message["compile"]["mode"] == "max-autotune"
    assert message["compute_dtype"] == "bfloat16"
    assert (message["source"], message["preload"]) == ("/s/program.py", ["/p.py"])


def test_deadlines_scale_together() -> None:
    tripled = Deadlines().times(3)
    assert tripled.of(Phase.COMPILE) == 3 * Deadlines().compile
    assert tripled.total == 3 * Deadlines().total


# --- files


@pytest.fixture
def without_privileges(scratch: Path) -> Iterator[Path]:
    """A folder, and no right to go where its modes forbid."""
    before = os.geteuid()
    if before == 0:
        os.chown(scratch, 65534, -1)
        os.seteuid(65534)
    yield scratch
    os.seteuid(before)


def test_a_tree_without_permissions_is_removed(without_privileges: Path) -> None:
    run = without_privileges / "run"
    locked = run / "a"
    (locked / "b").mkdir(parents=True)
    (locked / "b" / "file").touch()
    (run / "out").symlink_to("/")
    (locked / "b").chmod(0)
    locked.chmod(0)
    remove_tree(run)
    remove_tree(run)
    assert list(without_privileges.iterdir()) == []


def test_headers_that_a_killed_compiler_may_have_torn_are_dropped(tmp_path: Path) -> None:
    old, new = tmp_path / "a" / "old.h.gch", tmp_path / "a" / "new.h.gch"
    old.parent.mkdir()
    library = tmp_path / "a" / "kernel.so"
    whole = tmp_path / LIBRARIES / "device.so"
    whole.parent.mkdir()
    whole.touch()
    vouched = tmp_path / "a" / "vouched.h.gch"
    for built in (old, new, library, vouched):
        built.touch()
    for built in (old, library, vouched):
        built.with_name(built.name + DONE).touch()
    os.utime(old, (1, 1))
    drop_headers_since(tmp_path, 2.0)
    assert old.exists() and vouched.exists() and not new.exists()

    new.touch()
    library.with_name(library.name + DONE).unlink()
    drop_unfinished(tmp_path)
    assert old.exists() and not new.exists() and not library.exists()
    assert whole.exists()  # it was never there in part


def test_headers_are_looked_through_while_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is gone when it is looked into: Triton's, which it names anew when it is whole."""
    torn, gone = tmp_path / "torn.h.gch", tmp_path / "tmp.pid_1"
    torn.touch()
    gone.mkdir()
    scandir = os.scandir

    def scanned(path: str) -> object:
        if Path(path) == gone:
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scanned)
    drop_unfinished(tmp_path)
    assert not torn.exists()
    torn.touch()
    drop_headers_since(tmp_path, 0.0)
    assert not torn.exists()


def test_an_interpreter_without_torch_is_one_sentence(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(SandboxError, match=r"No module named 'torch'") as caught:
        Sandbox(str(bare), scratch=tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [bare]


def test_a_missing_interpreter_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"/nowhere/python: No such file"):
        Sandbox("/nowhere/python", scratch=tmp_path)


def test_a_mask_kept_by_the_id_of_what_each_call_makes_is_compiled_in_each() -> None:
    kernel, again = (
        Flex(block_mask=BlockMaskSpec(made="cached")),
        (Call(batch=1, q_len=16, kv_len=16),),
    )
    program = Program(kernel=kernel, compile=Compile(backend="eager"), calls=again, draws=2)
    assert shapes_a_call(replace(program, mask=Documents())) >= 4
    assert shapes_a_call(replace(program, mask=Causal())) == 1
